package main

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// writeLayer packs the files as a layer: in the order of their names, all of
// root's, all of the same time, with their permissions.
func writeLayer(out io.Writer, files fs.FS) error {
	layer := tar.NewWriter(out)
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return writeEntry(layer, files, path, entry)
	})
	if err != nil {
		return err
	}
	return layer.Close()
}

func writeEntry(layer *tar.Writer, files fs.FS, path string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: path, Mode: mode(info.Mode()), ModTime: time.Unix(0, 0)}
	switch {
	case info.IsDir():
		header.Typeflag = tar.TypeDir
		header.Name += "/"
	case info.Mode()&fs.ModeSymlink != 0:
		header.Typeflag = tar.TypeSymlink
		if header.Linkname, err = fs.ReadLink(files, path); err != nil {
			return err
		}
	case info.Mode().IsRegular():
		header.Typeflag = tar.TypeReg
		header.Size = info.Size()
	default:
		return fmt.Errorf("%s is neither a file, a folder nor a symbolic link: an image can't hold it", path)
	}
	if err := layer.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	content, err := files.Open(path)
	if err != nil {
		return err
	}
	defer content.Close()
	_, err = io.Copy(layer, content)
	return err
}

// mode is a file's permissions with the three bits that Go keeps elsewhere:
// a /tmp without its sticky bit would let one user remove another's files.
func mode(of fs.FileMode) int64 {
	bits := int64(of.Perm())
	for goBit, tarBit := range map[fs.FileMode]int64{
		fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000,
	} {
		if of&goBit != 0 {
			bits |= tarBit
		}
	}
	return bits
}
