// Command quic-go is the interop driver for quic-go: hq-interop and HTTP/3, client
// and server, behind the contract in ../README.md.
//
// It uses quic-go's public API only. Cipher suite, Retry and key updates are
// read from the connection state and from quic-go's own qlog events.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/qlog"
	"github.com/quic-go/quic-go/qlogwriter"
)

const (
	alpn           = "hq-interop"
	reliable       = 1024 * 1024
	givenUp        = quic.StreamErrorCode(0x46)
	requestLimit   = 4096
	notFound       = quic.StreamErrorCode(0x44)
	handshakeLimit = 10 * time.Second
)

func main() {
	if len(os.Args) < 2 {
		fail(errors.New("usage: quic-go server|client|http3-server|http3-client ..."))
	}
	var err error
	switch os.Args[1] {
	case "server":
		err = runServer(os.Args[2:])
	case "client":
		err = runClient(os.Args[2:])
	case "http3-server":
		err = runHTTP3Server(os.Args[2:])
	case "http3-client":
		err = runHTTP3Client(os.Args[2:])
	default:
		err = fmt.Errorf("unknown role %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "quic-go driver:", err)
	os.Exit(1)
}

// summary is the one line of JSON the contract asks for.
type summary struct {
	OK         bool   `json:"ok"`
	Files      int    `json:"files"`
	Bytes      int64  `json:"bytes"`
	KeyUpdates uint64 `json:"key_updates"`
	Begun      uint64 `json:"key_updates_begun"`
	Cipher     string `json:"cipher"`
	Retried    bool   `json:"retried"`
	Resumed    bool   `json:"resumed"`
	Moved      *bool  `json:"moved,omitempty"`
	Reliable   int64  `json:"reliable_size,omitempty"`
	Error      string `json:"error,omitempty"`
}

func (s summary) String() string {
	line, err := json.Marshal(s)
	if err != nil {
		fail(err)
	}
	return string(line)
}

// watcher counts what the contract reports, from the qlog events of one
// connection. It is both the trace and its recorder.
type watcher struct {
	mu         sync.Mutex
	keyUpdates uint64
	begun      uint64
	retried    bool
	reliable   int64
}

func (w *watcher) AddProducer() qlogwriter.Recorder   { return w }
func (w *watcher) SupportsSchemas(schema string) bool { return schema == qlog.EventSchema }
func (w *watcher) Close() error                       { return nil }

// report fills in what the watcher knows.
func (w *watcher) report(s *summary) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s.KeyUpdates, s.Begun, s.Retried = w.keyUpdates, w.begun, w.retried
	s.Reliable = w.reliable
}

// resets keeps the reliable size of a RESET_STREAM_AT frame.
func (w *watcher) resets(frames []qlog.Frame) {
	for _, frame := range frames {
		if reset, ok := frame.Frame.(*qlog.ResetStreamFrame); ok && reset.ReliableSize > 0 {
			w.reliable = int64(reset.ReliableSize)
		}
	}
}

func (w *watcher) RecordEvent(event qlogwriter.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch e := event.(type) {
	case qlog.KeyUpdated:
		// One event per direction; the phase number counts the updates.
		if uint64(e.KeyPhase) > w.keyUpdates {
			w.keyUpdates = uint64(e.KeyPhase)
			if e.Trigger == qlog.KeyUpdateLocal {
				w.begun++
			}
		}
	case qlog.PacketSent:
		w.resets(e.Frames)
	case qlog.PacketReceived:
		w.resets(e.Frames)
		if e.Header.PacketType == qlog.PacketTypeRetry {
			w.retried = true
		}
		// A server sees its own Retry come back as the token of an Initial.
		if e.Header.PacketType == qlog.PacketTypeInitial && e.Header.Token != nil && len(e.Header.Token.Raw) > 0 {
			w.retried = true
		}
	}
}

func config() *quic.Config {
	return &quic.Config{
		HandshakeIdleTimeout:             handshakeLimit,
		EnableStreamResetPartialDelivery: true,
		Tracer: func(context.Context, bool, quic.ConnectionID) qlogwriter.Trace {
			return new(watcher)
		},
	}
}

func watch(conn *quic.Conn) *watcher {
	w, ok := conn.QlogTrace().(*watcher)
	if !ok {
		return new(watcher)
	}
	return w
}

func cipherOf(conn *quic.Conn) string {
	return tls.CipherSuiteName(conn.ConnectionState().TLS.CipherSuite)
}

func runServer(args []string) error {
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "address to listen on")
	cert := flags.String("cert", "", "certificate chain, PEM")
	key := flags.String("key", "", "private key, PEM")
	root := flags.String("root", "", "directory to serve")
	retry := flags.Bool("retry", false, "validate every address with a Retry")
	chacha := flags.Bool("chacha20", false, "offer TLS_CHACHA20_POLY1305_SHA256 only")
	resetAt := flags.Bool("reset-at", false, "give every answer up after its first bytes, which arrive all the same")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *chacha {
		onlyChaCha20()
	}
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		return err
	}
	address, err := net.ResolveUDPAddr("udp", *listen)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", address)
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: socket}
	if *retry {
		transport.VerifySourceAddress = func(net.Addr) bool { return true }
	}
	listener, err := transport.Listen(&tls.Config{
		Certificates: []tls.Certificate{pair},
		NextProtos:   []string{alpn},
		MinVersion:   tls.VersionTLS13,
	}, config())
	if err != nil {
		return err
	}
	fmt.Printf("listening %s\n", listener.Addr())

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for {
		conn, err := listener.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return transport.Close()
			}
			return err
		}
		go serveConnection(conn, *root, *resetAt)
	}
}

func serveConnection(conn *quic.Conn, root string, resetAt bool) {
	report := summary{OK: true}
	first := conn.RemoteAddr().String()
	var mu sync.Mutex
	for {
		stream, err := conn.AcceptStream(context.Background())
		if err != nil {
			var closed *quic.ApplicationError
			mu.Lock()
			if !errors.As(err, &closed) || closed.ErrorCode != 0 {
				report.OK = false
				report.Error = err.Error()
			}
			break
		}
		go func() {
			n, err := serveStream(stream, root, resetAt)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintln(os.Stderr, "quic-go server:", err)
				return
			}
			report.Files++
			report.Bytes += n
		}()
	}
	watch(conn).report(&report)
	report.Cipher = cipherOf(conn)
	report.Resumed = conn.ConnectionState().TLS.DidResume
	moved := conn.RemoteAddr().String() != first
	report.Moved = &moved
	fmt.Println("connection", report)
	mu.Unlock()
}

func serveStream(stream *quic.Stream, root string, resetAt bool) (int64, error) {
	request, err := io.ReadAll(io.LimitReader(stream, requestLimit))
	if err != nil {
		return 0, err
	}
	path, ok := strings.CutPrefix(strings.TrimRight(string(request), " \r\n"), "GET /")
	if !ok || !filepath.IsLocal(path) {
		stream.CancelWrite(notFound)
		return 0, fmt.Errorf("bad request %q", request)
	}
	file, err := os.Open(filepath.Join(root, path))
	if err != nil {
		stream.CancelWrite(notFound)
		return 0, err
	}
	defer file.Close()
	if resetAt {
		return serveInPart(stream, file)
	}
	n, err := io.Copy(stream, file)
	if err != nil {
		return n, err
	}
	return n, stream.Close()
}

// serveInPart writes a little more than what will arrive whatever comes, and gives the rest up.
// Where the peer does not know the extension, the boundary means nothing, and too little arrives.
func serveInPart(stream *quic.Stream, file io.Reader) (int64, error) {
	n, err := io.CopyN(stream, file, reliable)
	if err != nil {
		return n, err
	}
	stream.SetReliableBoundary()
	if _, err := io.CopyN(stream, file, 64*1024); err != nil {
		return n, err
	}
	stream.CancelWrite(givenUp)
	return n, nil
}

func runClient(args []string) error {
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	addr := flags.String("addr", "", "server address")
	ca := flags.String("ca", "", "CA certificates, PEM")
	name := flags.String("server-name", "localhost", "name in the server's certificate")
	out := flags.String("out", "", "directory to write to")
	chacha := flags.Bool("chacha20", false, "offer TLS_CHACHA20_POLY1305_SHA256 only")
	// quic-go has no call for it, but begins its first key update by itself
	// after 100 packets in the 1-RTT space.
	resume := flags.Bool("resume", false, "fetch the first file, and the others over a resumed session")
	migrate := flags.Bool("migrate", false, "move to another local port during the transfer")
	keyUpdate := flags.Bool("key-update", false, "fail unless a key update happened")
	expectRetry := flags.Bool("expect-retry", false, "fail unless the server sent a Retry")
	expectReset := flags.Bool("expect-reset", false, "fail unless every answer is reset after its first bytes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *chacha {
		onlyChaCha20()
	}
	report := summary{}
	if *expectReset {
		receive = receiveUntilReset
	}
	err := fetchAll(*addr, *ca, *name, *out, flags.Args(), *resume, *migrate, &report)
	if err == nil && *expectRetry && !report.Retried {
		err = errors.New("no Retry was received")
	}
	if err == nil && *keyUpdate && report.KeyUpdates == 0 {
		err = errors.New("no key update happened")
	}
	report.OK = err == nil
	if err != nil {
		report.Error = err.Error()
	}
	fmt.Println(report)
	return err
}

func fetchAll(addr, ca, name, out string, paths []string, resume, migrate bool, report *summary) error {
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificate in %s", ca)
	}
	remote, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", nil)
	if err != nil {
		return err
	}
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	session := &tls.Config{
		RootCAs:            roots,
		ServerName:         name,
		NextProtos:         []string{alpn},
		MinVersion:         tls.VersionTLS13,
		ClientSessionCache: tls.NewLRUClientSessionCache(1),
	}
	if resume && len(paths) > 1 {
		if err := fetchSome(transport, remote, session, out, paths[:1], false, report); err != nil {
			return err
		}
		paths = paths[1:]
	}
	return fetchSome(transport, remote, session, out, paths, migrate, report)
}

// fetchSome fetches files over one connection.
func fetchSome(transport *quic.Transport, remote net.Addr, session *tls.Config, out string, paths []string, migrate bool, report *summary) error {
	conn, err := transport.Dial(context.Background(), remote, session, config())
	if err != nil {
		return err
	}
	var second *quic.Transport
	defer func() {
		watch(conn).report(report)
		_ = conn.CloseWithError(0, "")
		if second != nil {
			_ = second.Close()
		}
	}()
	report.Cipher = cipherOf(conn)
	report.Resumed = conn.ConnectionState().TLS.DidResume

	type fetched struct {
		bytes int64
		err   error
	}
	results := make(chan fetched, len(paths))
	for _, path := range paths {
		go func() {
			n, err := fetch(conn, strings.TrimPrefix(path, "/"), out)
			results <- fetched{n, err}
		}()
	}
	if migrate {
		// A little later, inside the transfer; there is no call that tells what has arrived.
		time.Sleep(50 * time.Millisecond)
		socket, err := net.ListenUDP("udp", nil)
		if err != nil {
			return err
		}
		second = &quic.Transport{Conn: socket}
		path, err := conn.AddPath(second)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(context.Background(), handshakeLimit)
		defer cancel()
		if err := path.Probe(ctx); err != nil {
			return fmt.Errorf("probing the second path: %w", err)
		}
		if err := path.Switch(); err != nil {
			return err
		}
	}
	for range paths {
		result := <-results
		if result.err != nil {
			err = errors.Join(err, result.err)
			continue
		}
		report.Files++
		report.Bytes += result.bytes
	}
	return err
}

func fetch(conn *quic.Conn, path, out string) (int64, error) {
	if !filepath.IsLocal(path) {
		return 0, fmt.Errorf("path %q leaves the output directory", path)
	}
	stream, err := conn.OpenStreamSync(context.Background())
	if err != nil {
		return 0, err
	}
	if _, err := fmt.Fprintf(stream, "GET /%s\r\n", path); err != nil {
		return 0, err
	}
	if err := stream.Close(); err != nil {
		return 0, err
	}
	file, err := os.Create(filepath.Join(out, filepath.Base(path)))
	if err != nil {
		return 0, err
	}
	n, err := receive(file, stream)
	return n, errors.Join(err, file.Close())
}

// receive takes an answer to its end, or to where --expect-reset wants it to end.
var receive = func(file io.Writer, stream io.Reader) (int64, error) {
	return io.Copy(file, stream)
}

func receiveUntilReset(file io.Writer, stream io.Reader) (int64, error) {
	n, err := io.Copy(file, stream)
	var reset *quic.StreamError
	if errors.As(err, &reset) && reset.Remote && reset.ErrorCode == givenUp {
		return n, nil
	}
	return n, errors.Join(errors.New("the answer was not reset after its first bytes"), err)
}
