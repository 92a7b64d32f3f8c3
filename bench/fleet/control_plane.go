package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// ControlPlane is an etcd and a kube-apiserver on loopback, in a folder of their own.
type ControlPlane struct {
	dir, bin, address string
	token             string
	ca                []byte
	etcd, apiServer   *Process
}

// What the contestants send is written down, and nothing else: the counts are the API server's.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata, users: ["` + operatorUser + `", "` + peerUser + `"]}
- {level: None}
`

func startControlPlane(dir, bin string) (_ *ControlPlane, err error) {
	port, err := freePort("127.0.0.1")
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{dir: dir, bin: bin, address: fmt.Sprintf("127.0.0.1:%d", port)}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if err := c.writeSecrets(); err != nil {
		return nil, err
	}
	socket := "unix://" + filepath.Join(dir, "etcd.sock")
	c.etcd, err = startProcess(dir, "etcd", environment(), filepath.Join(bin, "etcd"),
		"--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", socket, "--advertise-client-urls", "http://localhost:2379",
		"--listen-peer-urls", "unix://"+filepath.Join(dir, "etcd-peer.sock"))
	if err != nil {
		return nil, err
	}
	c.apiServer, err = startProcess(dir, "kube-apiserver", environment(), filepath.Join(bin, "kube-apiserver"),
		"--etcd-servers", socket, "--cert-dir", filepath.Join(dir, "api"), "--bind-address", "127.0.0.1",
		"--advertise-address", "127.0.0.1", "--secure-port", fmt.Sprint(port),
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", filepath.Join(dir, "sa.pub"),
		"--service-account-signing-key-file", filepath.Join(dir, "sa.key"),
		"--token-auth-file", filepath.Join(dir, "tokens.csv"), "--authorization-mode", "RBAC",
		"--service-cluster-ip-range", "10.96.0.0/16", "--endpoint-reconciler-type", "none",
		"--audit-policy-file", filepath.Join(dir, "audit.yaml"), "--audit-log-path", c.auditLog(),
		"--audit-log-maxsize", "4096", "--profiling=false")
	if err != nil {
		return nil, err
	}
	return c, c.apiServer.await(time.Minute, c.ready)
}

func (c *ControlPlane) auditLog() string { return filepath.Join(c.dir, "audit.log") }

func (c *ControlPlane) ready() (err error) {
	c.ca, err = os.ReadFile(filepath.Join(c.dir, "api", "apiserver.crt"))
	if err != nil {
		return err
	}
	if err := c.writeKubeconfig("admin", c.token); err != nil {
		return err
	}
	_, err = c.kubectl("get", "--raw", "/readyz")
	return err
}

// config is the administrator's, without a throttle.
func (c *ControlPlane) config() *rest.Config {
	return &rest.Config{
		Host: "https://" + c.address, BearerToken: c.token, QPS: -1, UserAgent: "bench",
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
	}
}

// kubectl runs the one of the same version, as the administrator.
func (c *ControlPlane) kubectl(arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), arguments...)
	command.Env = append(environment(), "KUBECONFIG="+c.kubeconfig("admin"))
	var out, said bytes.Buffer
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(arguments, " "), err, said.String())
	}
	return strings.TrimSpace(out.String()), nil
}

func (c *ControlPlane) kubeconfig(name string) string {
	return filepath.Join(c.dir, name+".kubeconfig")
}

// serviceAccount makes a kubeconfig for one and says where it is.
func (c *ControlPlane) serviceAccount(namespace, name string) (string, error) {
	token, err := c.kubectl("-n", namespace, "create", "token", name, "--duration", "4h")
	if err != nil {
		return "", err
	}
	return c.kubeconfig(name), c.writeKubeconfig(name, token)
}

func (c *ControlPlane) writeKubeconfig(name, token string) error {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: bench
clusters: [{name: bench, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: %s, user: {token: %s}}]
contexts: [{name: bench, context: {cluster: bench, user: %s}}]
`, c.address, encode(c.ca), name, token, name)
	return os.WriteFile(c.kubeconfig(name), []byte(text), 0o600)
}

// cpu is the processor time of both so far; what can't be read is 0.
func (c *ControlPlane) cpu() (sum time.Duration) {
	for _, process := range []*Process{c.etcd, c.apiServer} {
		if usage, err := process.usage(); err == nil {
			sum += usage.cpu
		}
	}
	return sum
}

// stop loses nothing: what is in there is of no use afterwards.
func (c *ControlPlane) stop() {
	_ = c.apiServer.stop(0)
	_ = c.etcd.stop(0)
}

func (c *ControlPlane) writeSecrets() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	c.token = hex.EncodeToString(random)
	files := map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": []byte(c.token + ",admin,admin,system:masters\n"),
		"audit.yaml": []byte(auditPolicy),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(c.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// environment has nothing in it that could change what is measured, such as a proxy.
func environment() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
}

func freePort(address string) (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
