package access_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// TestProgramsOverTLSWithCredentials runs both programs as they are built, against a server that demands TLS, a client
// certificate, and users that an operator has signed.
func TestProgramsOverTLSWithCredentials(t *testing.T) {
	dir := t.TempDir()
	programs := build(t)
	pool, pair := certificates(t, dir)
	at := operated(t, dir, pool, pair)
	secure := []string{
		"--nats", "tls://" + at, "--tls-ca", filepath.Join(dir, "ca.pem"),
		"--tls-cert", filepath.Join(dir, "cert.pem"), "--tls-key", filepath.Join(dir, "key.pem"),
	}
	log := newJournal()
	worker := exec.Command(filepath.Join(programs, "worker"), append([]string{
		"--model", "demo", "--http", "", "--data", dir, "--creds", filepath.Join(dir, "worker.creds"), "--inbox-prefix", inbox("worker"),
	}, secure...)...)
	worker.Stdout, worker.Stderr = log, log
	must(t, worker.Start())
	t.Cleanup(func() {
		must(t, worker.Process.Signal(syscall.SIGTERM))
		if err := worker.Wait(); err != nil {
			t.Errorf("the worker ended with %v:\n%s", err, log)
		}
	})
	log.wait(t, "taking tasks")

	submit := func(args ...string) (string, string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var stdout, stderr bytes.Buffer
		c := exec.CommandContext(ctx, filepath.Join(programs, "submit"), args...)
		c.Stdout, c.Stderr = &stdout, &stderr
		err := c.Run()
		return stdout.String(), stderr.String(), err
	}
	acme := append([]string{"--creds", filepath.Join(dir, "acme.creds"), "--inbox-prefix", inbox("acme-submit"), "--tenant", "acme"}, secure...)
	answer, said, err := submit(append(acme, sum)...)
	if err != nil || answer != "17 plus 25 is 42.\n" {
		t.Errorf("submit: %v, answers %q, says %s", err, answer, said)
	}
	_, said, err = submit(append(acme, "--id", "buy", buy)...)
	if err == nil || !strings.Contains(said, "--creds "+filepath.Join(dir, "acme.creds")) || !strings.Contains(said, "--tls-ca ") {
		t.Errorf("what to type next does not lead to the same server: %s", said)
	}
	for what, args := range map[string][]string{
		"without the certificates of the server": {"--nats", "tls://" + at, "--creds", filepath.Join(dir, "acme.creds"), "list"},
		"without credentials":                    append([]string{"list"}, secure...),
	} {
		if _, said, err := submit(args...); err == nil || said == "" {
			t.Errorf("%s: %v, says %q", what, err, said)
		}
	}
}

// build builds both programs and returns their directory.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", dir, "ratchet/cmd/worker", "ratchet/cmd/submit").CombinedOutput()
	if err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	return dir
}

// certificates makes an authority and one certificate, for the server and clients alike.
func certificates(t *testing.T, dir string) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	template := func(name string, serial int64) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	ca := template("authority", 1)
	ca.IsCA, ca.BasicConstraintsValid, ca.KeyUsage = true, true, x509.KeyUsageCertSign
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	must(t, err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	leaf := template("leaf", 2)
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	must(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	for name, block := range map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: caDER}, "cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: keyDER},
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	pool := x509.NewCertPool()
	parsed, err := x509.ParseCertificate(caDER)
	must(t, err)
	pool.AddCert(parsed)
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"))
	must(t, err)
	return pool, pair
}

// operated starts a server that trusts an operator, and writes credentials of a worker and of a tenant's submitter, with the
// permissions that the script prints.
func operated(t *testing.T, dir string, pool *x509.CertPool, pair tls.Certificate) string {
	t.Helper()
	operator, account := newKey(t, nkeys.CreateOperator), newKey(t, nkeys.CreateAccount)
	system := newKey(t, nkeys.CreateAccount)
	resolver := &server.MemAccResolver{}
	for name, key := range map[string]key{"workers": account, "system": system} {
		claims := jwt.NewAccountClaims(key.public)
		claims.Name = name
		if name == "workers" {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		token, err := claims.Encode(operator.pair)
		must(t, err)
		must(t, resolver.Store(key.public, token))
	}
	r := &rig{t: t, form: users}
	for file, user := range map[string]string{"worker": "worker", "acme": "acme-submit"} {
		signed := newKey(t, nkeys.CreateUser)
		claims := jwt.NewUserClaims(signed.public)
		claims.Pub.Allow.Add(r.allowed(user, "publish")...)
		claims.Sub.Allow.Add(r.allowed(user, "subscribe")...)
		token, err := claims.Encode(account.pair)
		must(t, err)
		seed, err := signed.pair.Seed()
		must(t, err)
		creds, err := jwt.FormatUserConfig(token, seed)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, file+".creds"), creds, 0o600))
	}
	trusted := jwt.NewOperatorClaims(operator.public)
	trusted.SystemAccount = system.public
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: filepath.Join(dir, "store"), NoLog: true, NoSigs: true,
		TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: resolver, SystemAccount: system.public,
		MaxControlLine: 16 << 10, // the worker's permissions are in its token, which is longer than the 4 KB of the default
		TLS:            true, TLSVerify: true, TLSTimeout: 10,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12},
	})
	must(t, err)
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return s.Addr().String()
}

// key is a pair of keys with its public part.
type key struct {
	pair   nkeys.KeyPair
	public string
}

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) key {
	t.Helper()
	pair, err := create()
	must(t, err)
	public, err := pair.PublicKey()
	must(t, err)
	return key{pair, public}
}
