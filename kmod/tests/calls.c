// SPDX-License-Identifier: GPL-2.0-only
/*
 * Calls that Python has no words for: calls uring|mmsg|fastopen|race PROTOCOL, or made|uring_made PROTOCOL FAMILY TYPE ASKED
 *
 * uring: connect, accept, send and receive through io_uring. mmsg: sendmmsg and recvmmsg.
 * fastopen: data in the SYN must be refused, and nothing leave. race: threads connect one fresh socket at
 * once, which without an agent fails for all of them. made: whose socket is made by socket(),
 * or through io_uring.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STCP_PEER 1

static const char MARK[] = "PLAINTEXT-MARKER-0123456789.";

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, strerror(errno)); exit(1); } } while (0)

static struct {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;

static void ring_open(void)
{
	struct io_uring_params p = {};
	char *sq, *cq;

	ring.fd = syscall(__NR_io_uring_setup, 4, &p);
	CHECK(ring.fd >= 0);
	sq = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
	ring.sqes = mmap(0, p.sq_entries * sizeof(*ring.sqes), PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
	CHECK(sq != MAP_FAILED && cq != MAP_FAILED && ring.sqes != MAP_FAILED);
	ring.sq_tail = (void *)(sq + p.sq_off.tail);
	ring.sq_mask = (void *)(sq + p.sq_off.ring_mask);
	ring.sq_array = (void *)(sq + p.sq_off.array);
	ring.cq_head = (void *)(cq + p.cq_off.head);
	ring.cq_tail = (void *)(cq + p.cq_off.tail);
	ring.cq_mask = (void *)(cq + p.cq_off.ring_mask);
	ring.cqes = (void *)(cq + p.cq_off.cqes);
}

/* One operation, waited for. */
static int ring_do(int op, int fd, const void *addr, unsigned len, unsigned long off)
{
	unsigned tail = *ring.sq_tail, head;
	struct io_uring_sqe *sqe = &ring.sqes[tail & *ring.sq_mask];
	int result;

	memset(sqe, 0, sizeof(*sqe));
	sqe->opcode = op;
	sqe->fd = fd;
	sqe->addr = (unsigned long)addr;
	sqe->len = len;
	sqe->off = off;
	ring.sq_array[tail & *ring.sq_mask] = tail & *ring.sq_mask;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	CHECK(syscall(__NR_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1);
	head = *ring.cq_head;
	CHECK(head != __atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE));
	result = ring.cqes[head & *ring.cq_mask].res;
	__atomic_store_n(ring.cq_head, head + 1, __ATOMIC_RELEASE);
	return result;
}

static int listen_at(int protocol, struct sockaddr_in *a)
{
	socklen_t len = sizeof(*a);
	int l = socket(AF_INET, SOCK_STREAM, protocol);

	*a = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	CHECK(l >= 0 && !bind(l, (void *)a, len) && !listen(l, 8) && !getsockname(l, (void *)a, &len));
	return l;
}

static int finish(pid_t child)
{
	int status;

	CHECK(waitpid(child, &status, 0) == child);
	return status != 0;
}

static int uring(int protocol)
{
	struct sockaddr_in a;
	char buf[64];
	int l = listen_at(protocol, &a), s;
	pid_t child = fork();

	ring_open();
	if (!child) {
		s = socket(AF_INET, SOCK_STREAM, protocol);
		CHECK(ring_do(IORING_OP_CONNECT, s, &a, 0, sizeof(a)) == 0);
		CHECK(ring_do(IORING_OP_SEND, s, MARK, sizeof(MARK), 0) == sizeof(MARK));
		CHECK(ring_do(IORING_OP_RECV, s, buf, sizeof(buf), 0) == sizeof(MARK));
		CHECK(!memcmp(buf, MARK, sizeof(MARK)));
		CHECK(!shutdown(s, SHUT_WR) && ring_do(IORING_OP_RECV, s, buf, sizeof(buf), 0) == 0);
		exit(0);
	}
	s = ring_do(IORING_OP_ACCEPT, l, 0, 0, 0);
	CHECK(s >= 0);
	CHECK(ring_do(IORING_OP_READ, s, buf, sizeof(buf), 0) == sizeof(MARK));
	CHECK(ring_do(IORING_OP_WRITE, s, buf, sizeof(MARK), 0) == sizeof(MARK));
	CHECK(ring_do(IORING_OP_RECV, s, buf, sizeof(buf), 0) == 0);
	close(s);
	return finish(child);
}

static int mmsg(int protocol)
{
	struct sockaddr_in a;
	char out[3][64], in[3][64] = {}, control[256];
	struct iovec vo[3], vi[3];
	struct mmsghdr mo[3] = {}, mi[3] = {};
	int l = listen_at(protocol, &a), s = socket(AF_INET, SOCK_STREAM, protocol), k, i, n = 0;

	for (i = 0; i < 3; i++) {
		snprintf(out[i], sizeof(out[i]), "%s%d", MARK, i);
		vo[i] = (struct iovec){ out[i], 64 };
		vi[i] = (struct iovec){ in[i], 64 };
		mo[i].msg_hdr = (struct msghdr){ .msg_iov = &vo[i], .msg_iovlen = 1 };
		mi[i].msg_hdr = (struct msghdr){ .msg_iov = &vi[i], .msg_iovlen = 1 };
	}
	mi[0].msg_hdr.msg_control = control;
	mi[0].msg_hdr.msg_controllen = sizeof(control);
	CHECK(!connect(s, (void *)&a, sizeof(a)));
	k = accept(l, 0, 0);
	CHECK(k >= 0 && sendmmsg(s, mo, 3, 0) == 3);
	while (n < 3) {
		i = recvmmsg(k, mi + n, 3 - n, MSG_WAITFORONE | MSG_WAITALL, 0);
		CHECK(i > 0);
		n += i;
	}
	/* kTLS would hand the type of each record to whoever asks for control messages. */
	CHECK(mi[0].msg_hdr.msg_controllen == 0);
	for (i = 0; i < 3; i++) {
		CHECK(mi[i].msg_len == 64 && !memcmp(in[i], out[i], 64));
		CHECK(mi[i].msg_hdr.msg_flags == 0);
	}
	return 0;
}

static int fastopen(int protocol)
{
	struct sockaddr_in a;
	int s;

	listen_at(IPPROTO_TCP, &a);
	s = socket(AF_INET, SOCK_STREAM, protocol);
	CHECK(sendto(s, MARK, sizeof(MARK), MSG_FASTOPEN, (void *)&a, sizeof(a)) < 0 && errno == EOPNOTSUPP);
	return 0;
}

static struct {
	pthread_barrier_t begin, end;
	struct sockaddr_in to;
	int socket, errors[8];
	int is_over;
} racing;

static void *race_one(void *number)
{
	int *error = &racing.errors[(long)number];

	for (;;) {
		pthread_barrier_wait(&racing.begin);
		if (racing.is_over)
			return NULL;
		*error = connect(racing.socket, (void *)&racing.to, sizeof(racing.to)) ? errno : 0;
		pthread_barrier_wait(&racing.end);
	}
}

static void *race_accept(void *listening)
{
	for (;;)
		close(accept((int)(long)listening, 0, 0));
	return NULL;
}

static int race(int protocol)
{
	enum { THREADS = 8, SECONDS = 8 };
	long counts[2][200] = {}, i;
	int round, is_wrong = 0, kind;
	time_t end = time(NULL) + SECONDS;
	pthread_t threads[THREADS], acceptor;

	CHECK(!pthread_create(&acceptor, NULL, race_accept, (void *)(long)listen_at(IPPROTO_TCP, &racing.to)));
	pthread_barrier_init(&racing.begin, NULL, THREADS + 1);
	pthread_barrier_init(&racing.end, NULL, THREADS + 1);
	for (i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, race_one, (void *)i));
	for (round = 0; time(NULL) < end; round++) {
		kind = round % 4 == 3;
		racing.socket = socket(AF_INET, SOCK_STREAM | (kind ? SOCK_NONBLOCK : 0), protocol);
		CHECK(racing.socket >= 0);
		pthread_barrier_wait(&racing.begin);
		pthread_barrier_wait(&racing.end);
		close(racing.socket);
		for (i = 0; i < THREADS; i++)
			counts[kind][racing.errors[i]]++;
	}
	racing.is_over = 1;
	pthread_barrier_wait(&racing.begin);
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (kind = 0; kind < 2; kind++) {
		for (i = 0; i < 200; i++) {
			if (!counts[kind][i])
				continue;
			printf("%s: %s %ld times\n", kind ? "without waiting" : "waiting", strerrorname_np(i), counts[kind][i]);
			is_wrong |= i != EPROTO && !(kind && (i == EINPROGRESS || i == EALREADY));
		}
	}
	return is_wrong;
}

/* Says "module" of a socket of the module, "other" of any other, or what is wrong. */
static int made(int protocol, int family, int type, int asked, int by_uring)
{
	char peer[36];
	socklen_t len = sizeof(peer);
	int s;

	if (by_uring) {
		ring_open();
		s = ring_do(IORING_OP_SOCKET, family, 0, asked, type);
		if (s < 0)
			errno = -s;
	} else {
		s = socket(family, type, asked);
	}
	if (s < 0)
		puts(strerror(errno));
	else
		puts(getsockopt(s, protocol, STCP_PEER, peer, &len) < 0 && errno != ENOTCONN ? "other" : "module");
	return 0;
}

int main(int count, char **v)
{
	alarm(60);
	if (count == 6)
		return made(atoi(v[2]), atoi(v[3]), atoi(v[4]), atoi(v[5]), !strcmp(v[1], "uring_made"));
	CHECK(count == 3);
	if (!strcmp(v[1], "race"))
		return race(atoi(v[2]));
	if (!strcmp(v[1], "uring"))
		return uring(atoi(v[2]));
	if (!strcmp(v[1], "mmsg"))
		return mmsg(atoi(v[2]));
	return fastopen(atoi(v[2]));
}
