// Command archive packs a folder into an OCI image archive, which containerd
// (and docker, podman, skopeo) can load: the local cluster has images without
// any docker to build them.
//
// The same folder gives the same bytes: no time, no owner and no order of the
// machine that packed it goes in.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "archive: %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	flags := flag.NewFlagSet("archive", flag.ContinueOnError)
	name := flags.String("name", "", "the image's full name, such as localhost/pause:dev")
	root := flags.String("root", "", "the folder that becomes the image's root")
	out := flags.String("out", "", "the archive to write")
	user := flags.String("user", "", "the user that the image runs as: a name or number")
	entrypoint := flags.String("entrypoint", "[]", "the entrypoint, as a JSON list")
	command := flags.String("command", "[]", "the default arguments, as a JSON list")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *name == "" || *root == "" || *out == "" {
		return fmt.Errorf("-name, -root and -out are needed")
	}
	image := Image{Name: *name, User: *user, Architecture: runtime.GOARCH}
	if err := json.Unmarshal([]byte(*entrypoint), &image.Entrypoint); err != nil {
		return fmt.Errorf("-entrypoint is no JSON list of strings: %w", err)
	}
	if err := json.Unmarshal([]byte(*command), &image.Command); err != nil {
		return fmt.Errorf("-command is no JSON list of strings: %w", err)
	}
	return writeFile(*out, image, *root)
}

// writeFile writes the archive beside its name and then renames it: what is
// there under the name is whole.
func writeFile(out string, image Image, root string) error {
	part := out + ".part"
	file, err := os.Create(part)
	if err != nil {
		return err
	}
	if err := image.Write(file, os.DirFS(root)); err != nil {
		file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(part, out)
}
