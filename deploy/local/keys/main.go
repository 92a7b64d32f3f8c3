// Command keys writes what the API server signs and shows itself with, so that
// no openssl has to be on the machine: the key pair of the service accounts'
// tokens, and the certificate that the kubelet knows the API server by.
//
// It must never overwrite a key: tokens that were signed with it would end.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 1 {
		return errors.New("usage: keys FOLDER")
	}
	return errors.Join(serviceAccount(arguments[0]), kubeletClient(arguments[0], time.Now()))
}

// serviceAccount makes the pair that signs service accounts' tokens and checks them.
func serviceAccount(folder string) error {
	key, private, err := newKey()
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return errors.Join(
		write(folder, "service-account.key", "PRIVATE KEY", private),
		write(folder, "service-account.pub", "PUBLIC KEY", public))
}

// kubeletClient makes the certificate that the API server shows to the
// kubelet; signed by itself, and the only one that the kubelet trusts.
func kubeletClient(folder string, now time.Time) error {
	key, private, err := newKey()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{Organization: []string{"system:masters"}, CommonName: "kube-apiserver"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.AddDate(10, 0, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	return errors.Join(
		write(folder, "kubelet-client.key", "PRIVATE KEY", private),
		write(folder, "kubelet-client.crt", "CERTIFICATE", certificate))
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	return key, private, err
}

// write makes the file, for its owner alone.
func write(folder, name, kind string, content []byte) error {
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(pem.Encode(file, &pem.Block{Type: kind, Bytes: content}), file.Close())
}
