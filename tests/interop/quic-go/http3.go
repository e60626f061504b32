package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// HTTP/3 behind the contract in ../README.md: the roles http3-server and http3-client.
const (
	patience  = 60 * time.Second
	atATime   = 32
	mebibyte  = 1 << 20
	half      = 32 * 1024
	link      = "</style.css>; rel=preload"
	afterBody = "after the body"
)

// pattern is bytes in which blocks differ from each other.
func pattern(length int) []byte {
	data := make([]byte, length)
	for at := range data {
		data[at] = byte(at ^ (at>>8)*7 ^ (at>>16)*31)
	}
	return data
}

func runHTTP3Server(args []string) error {
	if len(args) != 3 {
		return errors.New("usage: DRIVER http3-server CERT KEY ROOT")
	}
	pair, err := tls.LoadX509KeyPair(args[0], args[1])
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	server := &http3.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}}}
	server.Handler = handler(server, args[2])
	fmt.Println("listening", socket.LocalAddr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if err := server.Serve(socket); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	// What is under way goes on until the runner has had enough.
	select {}
}

func handler(server *http3.Server, root string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServer(http.Dir(root)))
	mux.HandleFunc("POST /echo", func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(w, r.Body); err != nil {
			fmt.Fprintln(os.Stderr, "echo:", err)
			panic(http.ErrAbortHandler)
		}
	})
	mux.HandleFunc("POST /trailers", func(w http.ResponseWriter, r *http.Request) {
		length, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			fmt.Fprintln(os.Stderr, "trailers:", err)
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Trailer", "X-Length, X-Word")
		_, _ = io.WriteString(w, "counted")
		w.Header().Set("X-Length", strconv.FormatInt(length, 10))
		w.Header().Set("X-Word", r.Trailer.Get("X-Word"))
	})
	mux.HandleFunc("GET /interim", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", link)
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Del("Link")
		_, _ = io.WriteString(w, "after 103")
	})
	going := make(chan struct{})
	var once sync.Once
	mux.HandleFunc("GET /shutdown", func(w http.ResponseWriter, r *http.Request) {
		once.Do(func() {
			go func() { _ = server.Shutdown(context.Background()) }()
			// There is no call that tells when the GOAWAY is on its way.
			time.Sleep(100 * time.Millisecond)
			close(going)
		})
		_, _ = io.WriteString(w, "going away")
	})
	mux.HandleFunc("GET /slow/{number}", func(w http.ResponseWriter, r *http.Request) {
		body := pattern(2 * half)
		_, _ = w.Write(body[:half])
		_ = http.NewResponseController(w).Flush()
		<-going
		_, _ = w.Write(body[half:])
	})
	return mux
}

// http3Client runs each case on a connection of its own.
type http3Client struct {
	address string
	session *tls.Config
	paths   []string
	out     string
}

func runHTTP3Client(args []string) error {
	if len(args) < 4 {
		return errors.New("usage: DRIVER http3-client ADDR CA LIST OUT CASE...")
	}
	pem, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	list, err := os.ReadFile(args[2])
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificate in %s", args[1])
	}
	client := &http3Client{
		address: args[0],
		session: &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{http3.NextProtoH3}},
		paths:   strings.Fields(string(list)),
		out:     args[3],
	}
	cases := map[string]func(context.Context, *http3.ClientConn) (string, error){
		"site":     client.site,
		"head":     client.head,
		"ranges":   client.ranges,
		"post":     post,
		"trailers": trailers,
		"interim":  interim,
		"goaway":   goAway,
	}
	for _, name := range args[4:] {
		detail, err := client.run(cases[name])
		if err != nil {
			fmt.Println(name, "failed", err)
			continue
		}
		fmt.Println(name, "ok", detail)
	}
	return nil
}

func (c *http3Client) run(one func(context.Context, *http3.ClientConn) (string, error)) (string, error) {
	if one == nil {
		return "", errors.New("no such case")
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := quic.DialAddr(ctx, c.address, c.session, &quic.Config{})
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "") }()
	transport := &http3.Transport{DisableCompression: true}
	return one(ctx, transport.NewClientConn(conn))
}

// answer is one that came whole.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    []byte
}

func request(ctx context.Context, method, path string, body io.Reader, fields ...string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, "https://localhost"+path, body)
	for i := 0; err == nil && i+1 < len(fields); i += 2 {
		req.Header.Set(fields[i], fields[i+1])
	}
	return req, err
}

func take(conn *http3.ClientConn, req *http.Request) (*answer, error) {
	rsp, err := conn.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer rsp.Body.Close()
	body, err := io.ReadAll(rsp.Body)
	return &answer{rsp.StatusCode, rsp.Header, rsp.Trailer, body}, err
}

// ask demands a status of the answer.
func ask(ctx context.Context, conn *http3.ClientConn, status int, method, path string, fields ...string) (*answer, error) {
	req, err := request(ctx, method, path, nil, fields...)
	if err != nil {
		return nil, err
	}
	got, err := take(conn, req)
	if err == nil && got.status != status {
		err = fmt.Errorf("status %d instead of %d", got.status, status)
	}
	return got, err
}

func (c *http3Client) site(ctx context.Context, conn *http3.ClientConn) (string, error) {
	var next, files atomic.Int64
	workers := make(chan error, atATime)
	for range atATime {
		go func() {
			for {
				at := next.Add(1) - 1
				if at >= int64(len(c.paths)) {
					workers <- nil
					return
				}
				got, err := ask(ctx, conn, http.StatusOK, http.MethodGet, c.paths[at])
				if err == nil {
					err = os.WriteFile(filepath.Join(c.out, filepath.Base(c.paths[at])), got.body, 0o644)
				}
				if err != nil {
					workers <- fmt.Errorf("%s: %w", c.paths[at], err)
					return
				}
				files.Add(1)
			}
		}()
	}
	var err error
	for range atATime {
		err = errors.Join(err, <-workers)
	}
	return fmt.Sprintf("%d files", files.Load()), err
}

func (c *http3Client) head(ctx context.Context, conn *http3.ClientConn) (string, error) {
	whole, err := ask(ctx, conn, http.StatusOK, http.MethodGet, c.paths[0])
	if err != nil {
		return "", err
	}
	head, err := ask(ctx, conn, http.StatusOK, http.MethodHead, c.paths[0])
	if err != nil {
		return "", err
	}
	length := head.header.Get("Content-Length")
	if length != strconv.Itoa(len(whole.body)) || len(head.body) > 0 {
		return "", fmt.Errorf("HEAD: %s, %d bytes", length, len(head.body))
	}
	_, err = ask(ctx, conn, http.StatusNotFound, http.MethodGet, "/nothing-here")
	return "200, 404", err
}

func (c *http3Client) ranges(ctx context.Context, conn *http3.ClientConn) (string, error) {
	whole, err := ask(ctx, conn, http.StatusOK, http.MethodGet, c.paths[0])
	if err != nil {
		return "", err
	}
	length := len(whole.body)
	for _, wanted := range []struct {
		field      string
		start, end int
	}{
		{"bytes=1000-1999", 1000, 2000},
		{"bytes=-500", length - 500, length},
		{"bytes=0-0", 0, 1},
	} {
		part, err := ask(ctx, conn, http.StatusPartialContent, http.MethodGet, c.paths[0], "Range", wanted.field)
		if err != nil {
			return "", err
		}
		said := part.header.Get("Content-Range")
		if said != fmt.Sprintf("bytes %d-%d/%d", wanted.start, wanted.end-1, length) ||
			!bytes.Equal(part.body, whole.body[wanted.start:wanted.end]) {
			return "", fmt.Errorf("%s: %s, %d bytes", wanted.field, said, len(part.body))
		}
	}
	behind, err := ask(ctx, conn, http.StatusRequestedRangeNotSatisfiable, http.MethodGet, c.paths[0], "Range", "bytes=999999999-")
	if err != nil {
		return "", err
	}
	if said := behind.header.Get("Content-Range"); said != fmt.Sprintf("bytes */%d", length) {
		return "", fmt.Errorf("416: %s", said)
	}
	known, value := "If-None-Match", whole.header.Get("Etag")
	if value == "" {
		known, value = "If-Modified-Since", whole.header.Get("Last-Modified")
	}
	same, err := ask(ctx, conn, http.StatusNotModified, http.MethodGet, c.paths[0], known, value)
	if err == nil && len(same.body) > 0 {
		err = errors.New("304 with a body")
	}
	return "206, 304, 416", err
}

func post(ctx context.Context, conn *http3.ClientConn) (string, error) {
	body := pattern(mebibyte)
	// Its type hides its length, so that it goes as it is read.
	req, err := request(ctx, http.MethodPost, "/echo", struct{ io.Reader }{bytes.NewReader(body)})
	if err != nil {
		return "", err
	}
	back, err := take(conn, req)
	if err != nil {
		return "", err
	}
	if back.status != http.StatusOK || !bytes.Equal(back.body, body) {
		return "", fmt.Errorf("status %d, %d bytes", back.status, len(back.body))
	}
	return fmt.Sprintf("%d bytes", len(back.body)), nil
}

func trailers(ctx context.Context, conn *http3.ClientConn) (string, error) {
	req, err := request(ctx, http.MethodPost, "/trailers", struct{ io.Reader }{bytes.NewReader(pattern(2 * half))})
	if err != nil {
		return "", err
	}
	req.Trailer = http.Header{"X-Word": {afterBody}}
	got, err := take(conn, req)
	if err != nil {
		return "", err
	}
	if got.status != http.StatusOK || string(got.body) != "counted" ||
		got.trailer.Get("X-Length") != strconv.Itoa(2*half) || got.trailer.Get("X-Word") != afterBody {
		return "", fmt.Errorf("status %d, trailers %v", got.status, got.trailer)
	}
	return "both ways", nil
}

func interim(ctx context.Context, conn *http3.ClientConn) (string, error) {
	var hints []string
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			hints = append(hints, fmt.Sprintf("%d %s", code, header.Get("Link")))
			return nil
		},
	})
	got, err := ask(traced, conn, http.StatusOK, http.MethodGet, "/interim")
	if err != nil {
		return "", err
	}
	if len(hints) != 1 || hints[0] != "103 "+link || string(got.body) != "after 103" {
		return "", fmt.Errorf("before the answer %q, in it %q", hints, got.body)
	}
	return "103", nil
}

// goAway has four answers half sent when the server begins to go; they come whole, and it takes
// nothing new.
func goAway(ctx context.Context, conn *http3.ClientConn) (string, error) {
	var slow []io.Reader
	for number := range 4 {
		req, err := request(ctx, http.MethodGet, fmt.Sprintf("/slow/%d", number), nil)
		if err != nil {
			return "", err
		}
		rsp, err := conn.RoundTrip(req)
		if err != nil {
			return "", err
		}
		defer rsp.Body.Close()
		had := make([]byte, half)
		if _, err := io.ReadFull(rsp.Body, had); err != nil {
			return "", err
		}
		slow = append(slow, io.MultiReader(bytes.NewReader(had), rsp.Body))
	}
	if _, err := ask(ctx, conn, http.StatusOK, http.MethodGet, "/shutdown"); err != nil {
		return "", err
	}
	for _, body := range slow {
		got, err := io.ReadAll(body)
		if err != nil {
			return "", err
		}
		if !bytes.Equal(got, pattern(2*half)) {
			return "", fmt.Errorf("%d other bytes", len(got))
		}
	}
	late, err := ask(ctx, conn, http.StatusOK, http.MethodGet, "/too-late")
	if late != nil {
		return "", fmt.Errorf("a late request has status %d", late.status)
	}
	return fmt.Sprintf("4 whole, then: %v", err), refusal(err)
}

// refusal is nil for the errors that follow a GOAWAY: the stack's own, that of a connection which it
// closed for it, and a rejection by the server.
func refusal(err error) error {
	var closed *http3.Error
	if errors.As(err, &closed) &&
		(closed.ErrorCode == http3.ErrCodeRequestRejected || closed.ErrorCode == http3.ErrCodeNoError && !closed.Remote) {
		return nil
	}
	if strings.Contains(err.Error(), "graceful shutdown") {
		return nil
	}
	return err
}
