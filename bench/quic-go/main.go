// Command quic-go is the driver of quic-go for the comparison benchmark: the
// measurements bulk, handshakes and echo behind the contract in ../contract.
//
// It uses quic-go's public API and defaults. Its packets have at most 1452
// bytes: there is no setting for more.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/quic-go/quic-go"
)

const (
	alpn      = "bench"
	name      = "localhost"
	block     = 64 * 1024
	echoBytes = 64
	warmUp    = 1000
	atOnce    = 8
)

type settings struct {
	addr     string
	material string
	bytes    uint64
	upload   bool
	count    uint64
}

func main() {
	if len(os.Args) < 3 {
		fail(errors.New("usage: quic-go server|client bulk|handshakes|echo --addr ADDR --material DIR ..."))
	}
	role, measure := os.Args[1], os.Args[2]
	var s settings
	flags := flag.NewFlagSet("quic-go", flag.ExitOnError)
	flags.StringVar(&s.addr, "addr", "", "address of the server")
	flags.StringVar(&s.material, "material", "", "folder with ca.pem, cert.pem and key.pem")
	flags.Uint64Var(&s.bytes, "bytes", 1<<30, "bytes of a bulk transfer")
	flags.BoolVar(&s.upload, "upload", false, "the client sends")
	flags.Uint64Var(&s.count, "count", 1, "handshakes or round trips")
	streams := flags.Uint64("streams", 1, "only 1 is known here")
	connections := flags.Uint64("connections", 1, "only 1 is known here")
	cipher := flags.String("cipher", "aes128gcm", "only aes128gcm is known here")
	_ = flags.Uint64("mtu", 1472, "not used: quic-go has no setting for it")
	_ = flags.Uint64("seconds", 1, "not used")
	if err := flags.Parse(os.Args[3:]); err != nil {
		fail(err)
	}
	if *streams != 1 || *connections != 1 || *cipher != "aes128gcm" {
		fail(errors.New("this driver has one stream, one connection and AES-128-GCM"))
	}
	var r report
	var err error
	switch role {
	case "server":
		r, err = serve(measure, s)
	case "client":
		r, err = drive(measure, s)
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fail(err)
	}
	r.print()
	// The last closing notices leave after the last measured moment.
	time.Sleep(100 * time.Millisecond)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "quic-go driver:", err)
	os.Exit(1)
}

type latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
}

// report is the one line of JSON the contract asks for.
type report struct {
	Version   string   `json:"version"`
	Seconds   float64  `json:"seconds"`
	CPUUser   float64  `json:"cpu_user"`
	CPUSystem float64  `json:"cpu_system"`
	Count     uint64   `json:"count"`
	Latency   *latency `json:"latency"`
}

func (r report) print() {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/quic-go/quic-go" {
				r.Version = strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	line, err := json.Marshal(r)
	if err != nil {
		fail(err)
	}
	fmt.Println(string(line))
}

// meter measures wall and processor time from its start on.
type meter struct {
	started      time.Time
	user, system time.Duration
}

func start() meter {
	user, system := usage()
	return meter{time.Now(), user, system}
}

func (m meter) stop(count uint64) report {
	seconds := time.Since(m.started).Seconds()
	user, system := usage()
	return report{
		Seconds:   seconds,
		CPUUser:   (user - m.user).Seconds(),
		CPUSystem: (system - m.system).Seconds(),
		Count:     count,
	}
}

func usage() (user, system time.Duration) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		fail(err)
	}
	return time.Duration(r.Utime.Nano()), time.Duration(r.Stime.Nano())
}

// serverTLS gives no tickets: every handshake is a full one.
func serverTLS(s settings) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(s.material, "cert.pem"), filepath.Join(s.material, "key.pem"))
	return &tls.Config{
		Certificates:           []tls.Certificate{pair},
		NextProtos:             []string{alpn},
		CurvePreferences:       []tls.CurveID{tls.X25519},
		SessionTicketsDisabled: true,
	}, err
}

func clientTLS(s settings) (*tls.Config, error) {
	text, err := os.ReadFile(filepath.Join(s.material, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New("ca.pem has no certificate")
	}
	return &tls.Config{
		RootCAs:          roots,
		ServerName:       name,
		NextProtos:       []string{alpn},
		CurvePreferences: []tls.CurveID{tls.X25519},
	}, nil
}

func serve(measure string, s settings) (report, error) {
	config, err := serverTLS(s)
	if err != nil {
		return report{}, err
	}
	listener, err := quic.ListenAddr(s.addr, config, nil)
	if err != nil {
		return report{}, err
	}
	fmt.Println("listening", listener.Addr())
	switch measure {
	case "bulk":
		return serveOne(listener, serveBulk)
	case "echo":
		return serveOne(listener, serveEcho)
	case "handshakes":
		return serveHandshakes(listener, s.count)
	}
	return report{}, fmt.Errorf("%s is not measured here", measure)
}

// serveOne serves the one stream of the one connection and waits for its end.
func serveOne(listener *quic.Listener, with func(*quic.Stream) (uint64, error)) (report, error) {
	ctx := context.Background()
	conn, err := listener.Accept(ctx)
	if err != nil {
		return report{}, err
	}
	m := start()
	stream, err := conn.AcceptStream(ctx)
	if err != nil {
		return report{}, err
	}
	count, err := with(stream)
	if err != nil {
		return report{}, err
	}
	<-conn.Context().Done()
	return m.stop(count), nil
}

// serveBulk reads how much it is to send, or nought if the client sends.
func serveBulk(stream *quic.Stream) (uint64, error) {
	var wanted [8]byte
	if _, err := io.ReadFull(stream, wanted[:]); err != nil {
		return 0, err
	}
	if bytes := binary.BigEndian.Uint64(wanted[:]); bytes > 0 {
		return bytes, send(stream, bytes)
	}
	received, err := receive(stream)
	if err != nil {
		return 0, err
	}
	if _, err := stream.Write(binary.BigEndian.AppendUint64(nil, received)); err != nil {
		return 0, err
	}
	return received, stream.Close()
}

func send(stream *quic.Stream, bytes uint64) error {
	data := make([]byte, block)
	for left := bytes; left > 0; {
		part := data[:min(left, block)]
		n, err := stream.Write(part)
		if err != nil {
			return err
		}
		left -= uint64(n)
	}
	return stream.Close()
}

func receive(stream *quic.Stream) (uint64, error) {
	data := make([]byte, block)
	var received uint64
	for {
		n, err := stream.Read(data)
		received += uint64(n)
		if err == io.EOF {
			return received, nil
		}
		if err != nil {
			return received, err
		}
	}
}

func serveEcho(stream *quic.Stream) (uint64, error) {
	data := make([]byte, 4*echoBytes)
	var bytes uint64
	for {
		n, err := stream.Read(data)
		if n > 0 {
			if _, err := stream.Write(data[:n]); err != nil {
				return 0, err
			}
			bytes += uint64(n)
		}
		if err == io.EOF {
			return bytes / echoBytes, stream.Close()
		}
		if err != nil {
			return 0, err
		}
	}
}

// serveHandshakes closes each connection as soon as its handshake is done here.
func serveHandshakes(listener *quic.Listener, count uint64) (report, error) {
	var m meter
	for done := uint64(0); done < count; done++ {
		conn, err := listener.Accept(context.Background())
		if err != nil {
			return report{}, err
		}
		if done == 0 {
			// The first handshake itself is left out of the time and of the count.
			m = start()
		}
		if err := conn.CloseWithError(0, ""); err != nil {
			return report{}, err
		}
	}
	return m.stop(count - 1), nil
}

func drive(measure string, s settings) (report, error) {
	config, err := clientTLS(s)
	if err != nil {
		return report{}, err
	}
	if measure == "handshakes" {
		return driveHandshakes(config, s)
	}
	ctx := context.Background()
	conn, err := quic.DialAddr(ctx, s.addr, config, nil)
	if err != nil {
		return report{}, err
	}
	m := start()
	stream, err := conn.OpenStreamSync(ctx)
	if err != nil {
		return report{}, err
	}
	var r report
	switch measure {
	case "bulk":
		r, err = driveBulk(m, stream, s)
	case "echo":
		r, err = driveEcho(stream, s.count)
	default:
		err = fmt.Errorf("%s is not measured here", measure)
	}
	if err != nil {
		return report{}, err
	}
	return r, conn.CloseWithError(0, "")
}

func driveBulk(m meter, stream *quic.Stream, s settings) (report, error) {
	wanted := s.bytes
	if s.upload {
		wanted = 0
	}
	if _, err := stream.Write(binary.BigEndian.AppendUint64(nil, wanted)); err != nil {
		return report{}, err
	}
	var received uint64
	var err error
	if s.upload {
		if err = send(stream, s.bytes); err != nil {
			return report{}, err
		}
		var receipt [8]byte
		_, err = io.ReadFull(stream, receipt[:])
		received = binary.BigEndian.Uint64(receipt[:])
	} else {
		if err = stream.Close(); err != nil {
			return report{}, err
		}
		received, err = receive(stream)
	}
	if err == nil && received != s.bytes {
		err = fmt.Errorf("%d bytes arrived of %d", received, s.bytes)
	}
	return m.stop(received), err
}

func driveEcho(stream *quic.Stream, count uint64) (report, error) {
	message, answer := make([]byte, echoBytes), make([]byte, echoBytes)
	times := make([]time.Duration, 0, count)
	m := start()
	for round := uint64(0); round < warmUp+count; round++ {
		if round == warmUp {
			m = start()
		}
		asked := time.Now()
		if _, err := stream.Write(message); err != nil {
			return report{}, err
		}
		if _, err := io.ReadFull(stream, answer); err != nil {
			return report{}, err
		}
		if round >= warmUp {
			times = append(times, time.Since(asked))
		}
	}
	r := m.stop(count)
	sort.Slice(times, func(i, j int) bool { return times[i] < times[j] })
	at := func(perMille int) float64 {
		rank := (len(times)*perMille + 999) / 1000
		return float64(times[max(rank, 1)-1].Nanoseconds()) / 1e3
	}
	r.Latency = &latency{at(500), at(990), at(999)}
	if err := stream.Close(); err != nil {
		return report{}, err
	}
	_, err := io.Copy(io.Discard, stream)
	return r, err
}

// driveHandshakes connects from one socket, some at once.
func driveHandshakes(config *tls.Config, s settings) (report, error) {
	transport, server, err := client(s.addr)
	if err != nil {
		return report{}, err
	}
	turns := make(chan struct{}, s.count)
	for range s.count {
		turns <- struct{}{}
	}
	close(turns)
	failures := make(chan error, atOnce)
	m := start()
	var workers sync.WaitGroup
	for range atOnce {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for range turns {
				conn, err := transport.Dial(context.Background(), server, config, nil)
				if err != nil {
					failures <- err
					return
				}
				<-conn.Context().Done()
			}
		}()
	}
	workers.Wait()
	select {
	case err := <-failures:
		return report{}, err
	default:
		return m.stop(s.count), nil
	}
}

// client is one socket from which all connections of a client go.
func client(addr string) (*quic.Transport, net.Addr, error) {
	server, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, nil, err
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, nil, err
	}
	return &quic.Transport{Conn: socket}, server, nil
}
