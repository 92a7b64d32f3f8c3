package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"
)

// Image is what an archive says about an image, beside its files.
type Image struct {
	Name         string // full, with its tag: containerd looks it up by exactly this
	Architecture string // as Go names it
	User         string
	Entrypoint   []string
	Command      []string
}

const (
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// The document types hold the part of the OCI image format that is used here.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	index struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Manifests     []descriptor `json:"manifests"`
	}
	manifest struct {
		SchemaVersion int          `json:"schemaVersion"`
		MediaType     string       `json:"mediaType"`
		Config        descriptor   `json:"config"`
		Layers        []descriptor `json:"layers"`
	}
	configuration struct {
		Created      time.Time `json:"created"`
		Architecture string    `json:"architecture"`
		OS           string    `json:"os"`
		Config       struct {
			User       string   `json:"User,omitempty"`
			Env        []string `json:"Env"`
			Entrypoint []string `json:"Entrypoint,omitempty"`
			Cmd        []string `json:"Cmd,omitempty"`
		} `json:"config"`
		RootFS struct {
			Type    string   `json:"type"`
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
)

// Write packs the files as the image's one layer and writes the archive.
func (i Image) Write(out io.Writer, files fs.FS) error {
	repository, tag, found := cutTag(i.Name)
	if !found || repository == "" || tag == "" {
		return fmt.Errorf("the image name %q needs a tag, such as %s:dev", i.Name, i.Name)
	}
	var layer bytes.Buffer
	if err := writeLayer(&layer, files); err != nil {
		return err
	}
	archive := &blobs{out: tar.NewWriter(out)}
	archive.file("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	layerDescriptor := archive.blob(mediaLayer, layer.Bytes())
	configDescriptor := archive.document(mediaConfig, i.configuration(layerDescriptor.Digest))
	entry := archive.document(mediaManifest, manifest{
		SchemaVersion: 2, MediaType: mediaManifest,
		Config: configDescriptor, Layers: []descriptor{layerDescriptor},
	})
	entry.Annotations = map[string]string{
		"io.containerd.image.name":          i.Name,
		"org.opencontainers.image.ref.name": tag,
	}
	archive.file("index.json", encode(&archive.failure, index{
		SchemaVersion: 2, MediaType: mediaIndex, Manifests: []descriptor{entry},
	}))
	if archive.failure != nil {
		return archive.failure
	}
	return archive.out.Close()
}

// cutTag splits a name at its tag; a colon before the last slash is a port.
func cutTag(name string) (repository, tag string, found bool) {
	colon := strings.LastIndexByte(name, ':')
	if colon < strings.LastIndexByte(name, '/') || colon < 0 {
		return name, "", false
	}
	return name[:colon], name[colon+1:], true
}

func (i Image) configuration(layer string) configuration {
	var c configuration
	c.Created = time.Unix(0, 0).UTC()
	c.Architecture = i.Architecture
	c.OS = "linux"
	c.Config.User = i.User
	c.Config.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	c.Config.Entrypoint = i.Entrypoint
	c.Config.Cmd = i.Command
	c.RootFS.Type = "layers"
	c.RootFS.DiffIDs = []string{layer} // not compressed: both digests are one
	return c
}

// blobs writes an archive's entries and keeps the first failure, so that the
// order of the entries can be read without a check after each.
type blobs struct {
	out     *tar.Writer
	failure error
}

func (b *blobs) document(mediaType string, document any) descriptor {
	return b.blob(mediaType, encode(&b.failure, document))
}

func (b *blobs) blob(mediaType string, content []byte) descriptor {
	sum := sha256.Sum256(content)
	name := hex.EncodeToString(sum[:])
	b.file("blobs/sha256/"+name, content)
	return descriptor{MediaType: mediaType, Digest: "sha256:" + name, Size: len(content)}
}

func (b *blobs) file(name string, content []byte) {
	if b.failure != nil {
		return
	}
	header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0)}
	if b.failure = b.out.WriteHeader(header); b.failure == nil {
		_, b.failure = b.out.Write(content)
	}
}

func encode(failure *error, document any) []byte {
	content, err := json.Marshal(document)
	if err != nil && *failure == nil {
		*failure = err
	}
	return content
}
