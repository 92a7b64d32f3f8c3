package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample is a folder with one of each kind of thing that an image holds.
func sample(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	steps := []error{
		os.MkdirAll(filepath.Join(root, "usr", "bin"), 0o755),
		os.WriteFile(filepath.Join(root, "usr", "bin", "tool"), []byte("#!"), 0o755),
		os.Chmod(filepath.Join(root, "usr", "bin", "tool"), 0o755),
		os.Symlink("tool", filepath.Join(root, "usr", "bin", "alias")),
		os.Mkdir(filepath.Join(root, "tmp"), 0o755),
		os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	return root
}

func pack(t *testing.T, root string) map[string][]byte {
	t.Helper()
	var out bytes.Buffer
	image := Image{
		Name: "localhost:5000/some/tool:dev", Architecture: "amd64", User: "13",
		Entrypoint: []string{"/usr/bin/tool"}, Command: []string{"-x"},
	}
	if err := image.Write(&out, os.DirFS(root)); err != nil {
		t.Fatal(err)
	}
	return entries(t, out.Bytes(), func(*tar.Header) {})
}

func entries(t *testing.T, archive []byte, see func(*tar.Header)) map[string][]byte {
	t.Helper()
	found := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		see(header)
		if found[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}

func decode[T any](t *testing.T, content []byte) T {
	t.Helper()
	var document T
	if err := json.Unmarshal(content, &document); err != nil {
		t.Fatalf("%v in %s", err, content)
	}
	return document
}

// open follows a descriptor as a container runtime does: by digest and size.
func open(t *testing.T, files map[string][]byte, to descriptor) []byte {
	t.Helper()
	name, _ := strings.CutPrefix(to.Digest, "sha256:")
	content, found := files["blobs/sha256/"+name]
	if sum := sha256.Sum256(content); !found || hex.EncodeToString(sum[:]) != name || len(content) != to.Size {
		t.Fatalf("%s: found %v, %d bytes", to.Digest, found, len(content))
	}
	return content
}

func TestArchiveIsAnImage(t *testing.T) {
	files := pack(t, sample(t))
	if string(files["oci-layout"]) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %q", files["oci-layout"])
	}
	list := decode[index](t, files["index.json"])
	if len(list.Manifests) != 1 || list.Manifests[0].Annotations["io.containerd.image.name"] != "localhost:5000/some/tool:dev" {
		t.Fatalf("index is %+v", list)
	}
	image := decode[manifest](t, open(t, files, list.Manifests[0]))
	config := decode[configuration](t, open(t, files, image.Config))
	if config.Config.User != "13" || config.Config.Entrypoint[0] != "/usr/bin/tool" || config.Config.Cmd[0] != "-x" {
		t.Errorf("config is %+v", config.Config)
	}
	if config.RootFS.DiffIDs[0] != image.Layers[0].Digest {
		t.Errorf("the layer %s is named %s in the config", image.Layers[0].Digest, config.RootFS.DiffIDs[0])
	}

	headers := map[string]*tar.Header{}
	layer := open(t, files, image.Layers[0])
	contents := entries(t, layer, func(h *tar.Header) { headers[h.Name] = h })
	if string(contents["usr/bin/tool"]) != "#!" || headers["usr/bin/tool"].Mode != 0o755 {
		t.Errorf("the file is %q, %+v", contents["usr/bin/tool"], headers["usr/bin/tool"])
	}
	if headers["usr/bin/alias"].Linkname != "tool" || headers["usr/bin/alias"].Typeflag != tar.TypeSymlink {
		t.Errorf("the link is %+v", headers["usr/bin/alias"])
	}
	if headers["tmp/"].Mode != 0o1777 {
		t.Errorf("tmp has mode %o, want 1777", headers["tmp/"].Mode)
	}
	for name, header := range headers {
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" || header.ModTime.Unix() != 0 {
			t.Errorf("%s tells of the machine that packed it: %+v", name, header)
		}
	}
}

func TestSameFolderGivesSameBytes(t *testing.T) {
	var first, second bytes.Buffer
	image := Image{Name: "localhost/tool:dev", Architecture: "amd64"}
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := image.Write(out, os.DirFS(sample(t))); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two archives of equal folders differ")
	}
}

func TestRefusals(t *testing.T) {
	out := filepath.Join(t.TempDir(), "image.tar")
	root := t.TempDir()
	if err := os.Symlink("/nowhere", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, want string
		arguments  []string
	}{
		{"no tag", "needs a tag", []string{"-name", "localhost:5000/tool", "-root", root, "-out", out}},
		{"no root", "-root", []string{"-name", "tool:dev", "-out", out}},
		{"root is missing", "no such file", []string{"-name", "tool:dev", "-root", "/nowhere", "-out", out}},
		{"entrypoint is no list", "-entrypoint", []string{"-name", "tool:dev", "-root", root, "-out", out, "-entrypoint", "x"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := run(test.arguments)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Error("an archive is there all the same")
			}
		})
	}
}
