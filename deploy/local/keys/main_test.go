package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
)

func TestTheKubeletTrustsTheCertificateOfTheAPIServer(t *testing.T) {
	folder := t.TempDir()
	if err := run([]string{folder}); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "kubelet-client.crt"), filepath.Join(folder, "kubelet-client.key"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(pair.Leaf)
	options := x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := pair.Leaf.Verify(options); err != nil {
		t.Error(err)
	}
	if got := pair.Leaf.Subject.String(); got != "CN=kube-apiserver,O=system:masters" {
		t.Errorf("it names %s", got)
	}
}

func TestTheServiceAccountsKeysArePrivateAndAPair(t *testing.T) {
	folder := t.TempDir()
	if err := run([]string{folder}); err != nil {
		t.Fatal(err)
	}
	private, err := x509.ParsePKCS8PrivateKey(block(t, folder, "service-account.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, ok := private.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("the key is a %T", private)
	}
	public, err := x509.ParsePKIXPublicKey(block(t, folder, "service-account.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if !key.PublicKey.Equal(public) {
		t.Error("the public key is another's")
	}
}

func TestAKeyIsNeverOverwritten(t *testing.T) {
	folder := t.TempDir()
	if err := run([]string{folder}); err != nil {
		t.Fatal(err)
	}
	before := block(t, folder, "service-account.key")
	if run([]string{folder}) == nil {
		t.Error("a second run says nothing")
	}
	if !bytes.Equal(before, block(t, folder, "service-account.key")) {
		t.Error("the key is another")
	}
}

func block(t *testing.T, folder, name string) []byte {
	t.Helper()
	path := filepath.Join(folder, name)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: others may read it", name)
	}
	found, _ := pem.Decode(content)
	if found == nil {
		t.Fatalf("%s is not PEM", name)
	}
	return found.Bytes
}
