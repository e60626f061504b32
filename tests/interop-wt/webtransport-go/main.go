// Interop driver for webtransport-go; the contract is in ../README.md.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"github.com/quic-go/webtransport-go"
)

const (
	patience  = 15 * time.Second
	parting   = 300 * time.Millisecond
	transfer  = 1 << 20
	datagrams = 1000
	window    = 16
)

func main() {
	err := errors.New("usage: DRIVER server FOLDER | client FOLDER ADDR")
	switch {
	case len(os.Args) == 3 && os.Args[1] == "server":
		err = serve(os.Args[2])
	case len(os.Args) == 4 && os.Args[1] == "client":
		err = runClient(os.Args[2], os.Args[3])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "webtransport-go driver:", err)
		os.Exit(1)
	}
}

func serve(folder string) error {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"))
	if err != nil {
		return err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	server := &webtransport.Server{H3: &http3.Server{
		Handler:   mux,
		TLSConfig: http3.ConfigureTLSConfig(&tls.Config{Certificates: []tls.Certificate{certificate}}),
	}}
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		session, err := server.Upgrade(w, r)
		if err != nil {
			fmt.Fprintln(os.Stderr, "upgrade:", err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		serveSession(session)
	})
	mux.HandleFunc("/close", func(w http.ResponseWriter, r *http.Request) {
		session, err := server.Upgrade(w, r)
		if err != nil {
			fmt.Fprintln(os.Stderr, "upgrade:", err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		session.CloseWithError(4712, "goodbye")
	})
	fmt.Println("listening", socket.LocalAddr())
	// The runner asks for the end by closing the standard input.
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return server.Serve(socket)
}

func serveSession(session *webtransport.Session) {
	ctx := context.Background()
	go func() {
		for {
			incoming, err := session.AcceptUniStream(ctx)
			if err != nil {
				return
			}
			outgoing, err := session.OpenUniStreamSync(ctx)
			if err != nil {
				return
			}
			go func() {
				io.Copy(outgoing, incoming)
				outgoing.Close()
			}()
		}
	}()
	go func() {
		for {
			datagram, err := session.ReceiveDatagram(ctx)
			if err != nil {
				return
			}
			session.SendDatagram(datagram)
		}
	}()
	for {
		stream, err := session.AcceptStream(ctx)
		if closed := closedByPeer(err); closed != nil {
			fmt.Println("closed", closed.ErrorCode, closed.Message)
		}
		if err != nil {
			return
		}
		go func() {
			io.Copy(stream, stream)
			stream.Close()
		}()
	}
}

// What the peer closed a session with; nil where it did not. Errors of datagrams do not tell it.
func closedByPeer(err error) *webtransport.SessionError {
	var closed *webtransport.SessionError
	if errors.As(err, &closed) && closed.Remote {
		return closed
	}
	return nil
}

type client struct {
	transport webtransport.Transport
	address   string
}

func runClient(folder, address string) error {
	pem, err := os.ReadFile(filepath.Join(folder, "cert.pem"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	c := &client{
		transport: webtransport.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost", NextProtos: []string{http3.NextProtoH3}},
			QUICConfig:      &quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true},
		},
		address: address,
	}
	c.report("handshake", c.handshake)
	c.report("bidirectional", c.bidirectional)
	c.report("unidirectional", c.unidirectional)
	c.report("datagrams", c.datagrams)
	c.report("server-closes", c.serverCloses)
	c.report("client-closes", c.clientCloses)
	return nil
}

func (c *client) report(name string, run func(context.Context) (string, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	detail, err := run(ctx)
	if err != nil {
		fmt.Println(name, "failed", err)
		return
	}
	fmt.Println(name, "ok", detail)
}

func (c *client) session(ctx context.Context, path string) (*webtransport.Session, error) {
	// Transport.Dial would close the connection together with the session, before the capsule has left.
	connection, err := quic.DialAddr(ctx, c.address, c.transport.TLSClientConfig, c.transport.QUICConfig)
	if err != nil {
		return nil, err
	}
	over, err := c.transport.NewClientConn(connection)
	if err != nil {
		return nil, err
	}
	_, session, err := over.Dial(ctx, "https://"+c.address+path, nil)
	return session, err
}

func (c *client) handshake(ctx context.Context) (string, error) {
	session, err := c.session(ctx, "/echo")
	if err != nil {
		return "", err
	}
	return "", session.CloseWithError(0, "")
}

func (c *client) bidirectional(ctx context.Context) (string, error) {
	session, err := c.session(ctx, "/echo")
	if err != nil {
		return "", err
	}
	defer session.CloseWithError(0, "")
	stream, err := session.OpenStreamSync(ctx)
	if err != nil {
		return "", err
	}
	stream.SetDeadline(time.Now().Add(patience))
	go send(stream)
	return compare(stream)
}

func (c *client) unidirectional(ctx context.Context) (string, error) {
	session, err := c.session(ctx, "/echo")
	if err != nil {
		return "", err
	}
	defer session.CloseWithError(0, "")
	outgoing, err := session.OpenUniStreamSync(ctx)
	if err != nil {
		return "", err
	}
	go send(outgoing)
	incoming, err := session.AcceptUniStream(ctx)
	if err != nil {
		return "", err
	}
	incoming.SetReadDeadline(time.Now().Add(patience))
	return compare(incoming)
}

func send(stream io.WriteCloser) {
	stream.Write(pattern())
	stream.Close()
}

func compare(stream io.Reader) (string, error) {
	data, err := io.ReadAll(stream)
	if err != nil {
		return "", err
	}
	if !bytes.Equal(data, pattern()) {
		return "", fmt.Errorf("other bytes came back, %d of them", len(data))
	}
	return fmt.Sprint(len(data), " bytes"), nil
}

// Bytes in which blocks differ from each other.
func pattern() []byte {
	data := make([]byte, transfer)
	for i := range data {
		data[i] = byte(i ^ (i>>8)*7 ^ (i>>16)*31)
	}
	return data
}

func (c *client) datagrams(ctx context.Context) (string, error) {
	session, err := c.session(ctx, "/echo")
	if err != nil {
		return "", err
	}
	defer session.CloseWithError(0, "")
	back := make(map[uint32]bool)
	sent := 0
	for len(back) < datagrams {
		for sent < datagrams && sent-len(back) < window {
			datagram := bytes.Repeat([]byte{'.'}, 100)
			binary.BigEndian.PutUint32(datagram, uint32(sent))
			if err := session.SendDatagram(datagram); err != nil {
				return "", err
			}
			sent++
		}
		datagram, err := session.ReceiveDatagram(ctx)
		if err != nil {
			return "", fmt.Errorf("%d of %d came back: %w", len(back), sent, err)
		}
		if len(datagram) != 100 || !bytes.Equal(datagram[4:], bytes.Repeat([]byte{'.'}, 96)) {
			return "", errors.New("another datagram came back")
		}
		back[binary.BigEndian.Uint32(datagram)] = true
	}
	return fmt.Sprintf("%d of %d", len(back), datagrams), nil
}

func (c *client) serverCloses(ctx context.Context) (string, error) {
	session, err := c.session(ctx, "/close")
	if err != nil {
		return "", err
	}
	_, err = session.AcceptStream(ctx)
	closed := closedByPeer(err)
	if closed == nil || closed.ErrorCode != 4712 || closed.Message != "goodbye" {
		return "", fmt.Errorf("the server's close was: %v", err)
	}
	return "", nil
}

// The runner looks at what the server says of it.
func (c *client) clientCloses(ctx context.Context) (string, error) {
	session, err := c.session(ctx, "/echo")
	if err != nil {
		return "", err
	}
	if err := session.CloseWithError(4711, "see you"); err != nil {
		return "", err
	}
	time.Sleep(parting)
	return "", nil
}
