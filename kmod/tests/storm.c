// SPDX-License-Identifier: GPL-2.0-only
/*
 * Every call on shared sockets at once: storm PROTOCOL SEED SECONDS
 *
 * Threads take descriptors from one table, and do with them what the dice say. No call is to wait for
 * long, no thread to hang. A process of its own plays peers in clear, so that no descriptor of theirs
 * is ever in the table. The agent is the caller's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 8, SLOTS = 12, LISTENERS = 2, HANG = 60 };

static const char MARK[] = "PLAINTEXT-MARKER-0123456789.";
static const char *const NAMES[] = {
	"socket", "connect", "listen", "accept", "send", "recv", "poll", "epoll", "shutdown", "close",
	"options", "count", "names", "unspecified", "splice", "pass", "writev",
};
enum { CALLS = sizeof(NAMES) / sizeof(*NAMES) };

static int protocol, epoll_fd, passing[2], pipes[2];
static volatile int slots[SLOTS], is_over;
static struct sockaddr_in6 ours[LISTENERS], plain;
static struct {
	unsigned long long dice;
	volatile int call;
	long done[CALLS], failed[CALLS];
	char data[70000];
} threads[THREADS];

#define CHECK(condition) \
	do { if (!(condition)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #condition, strerror(errno)); exit(1); } } while (0)

static unsigned roll(unsigned long long *dice, unsigned sides)
{
	*dice = *dice * 6364136223846793005ULL + 1442695040888963407ULL;
	return (*dice >> 33) % sides;
}

static void set_times(int s)
{
	struct timeval t = { .tv_usec = 50000 };

	setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

static int new_socket(int kind)
{
	int s = socket(AF_INET6, SOCK_STREAM | kind, protocol);

	if (s >= 0)
		set_times(s);
	return s;
}

static int listen_at(int s, struct sockaddr_in6 *a)
{
	socklen_t len = sizeof(*a);

	a->sin6_family = AF_INET6;
	a->sin6_addr = in6addr_loopback;
	return bind(s, (void *)a, len) || listen(s, 16) || getsockname(s, (void *)a, &len) ? -1 : s;
}

/* Another listener at this one's address, or -1. */
static int listen_again(struct sockaddr_in6 *a)
{
	int s = new_socket(0), yes = 1;

	setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof(yes));
	if (listen_at(s, a) >= 0)
		return s;
	close(s);
	return -1;
}

/* Puts a descriptor into the table and closes the one that was there. */
static void put(int slot, int s)
{
	int old;

	if (s < 0)
		return;
	old = __atomic_exchange_n(&slots[slot], s, __ATOMIC_ACQ_REL);
	if (old >= 0)
		close(old);
}

static long pass_on(unsigned long long *dice, int s)
{
	char room[CMSG_SPACE(sizeof(int))] = {}, byte = 0;
	struct iovec v = { &byte, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int got;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &s, sizeof(int));
	sendmsg(passing[0], &m, MSG_DONTWAIT);
	m.msg_controllen = sizeof(room);
	if (recvmsg(passing[1], &m, MSG_DONTWAIT) < 0 || !(c = CMSG_FIRSTHDR(&m)))
		return -1;
	memcpy(&got, CMSG_DATA(c), sizeof(int));
	put(LISTENERS + roll(dice, SLOTS - LISTENERS), got);
	return 0;
}

static long do_call(int call, unsigned long long *dice, int slot, int s, char *data)
{
	static const int kinds[] = { 0, 0, SOCK_NONBLOCK };
	static const int flags[] = { 0, 0, MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, MSG_TRUNC, MSG_PEEK | MSG_WAITALL, MSG_OOB };
	size_t len = roll(dice, 4) ? roll(dice, 3000) : roll(dice, 70000);
	struct sockaddr_storage a = {};
	socklen_t a_len = sizeof(a);
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | (roll(dice, 2) ? EPOLLET : 0) }, events[4];
	struct pollfd polled = { s, POLLIN | POLLOUT, 0 };
	struct iovec v[3] = { { data, len / 3 }, { data, len / 5 }, { data, 1 } };
	char value[300];
	int number = roll(dice, 4) ? 1 : roll(dice, 50000);

	switch (call) {
	case 0:
		if (slot >= LISTENERS && !roll(dice, 12))
			put(slot, new_socket(kinds[roll(dice, 3)]));
		return 0;
	case 1:
		return connect(s, (void *)(roll(dice, 8) ? &ours[roll(dice, LISTENERS)] : &plain), sizeof(plain));
	case 2:
		return slot < LISTENERS || !roll(dice, 40) ? listen(s, 16) : 0;
	case 3:
		number = accept4(slots[roll(dice, LISTENERS)], NULL, NULL, kinds[roll(dice, 3)]);
		if (number < 0)
			return -1;
		set_times(number);
		put(LISTENERS + roll(dice, SLOTS - LISTENERS), number);
		return 0;
	case 4:
		return send(s, data, len, MSG_NOSIGNAL | (roll(dice, 2) ? MSG_DONTWAIT : 0) | (roll(dice, 8) ? 0 : MSG_MORE));
	case 5:
		return recv(s, data + 35000, len / 2, flags[roll(dice, 8)]);
	case 6:
		return poll(&polled, 1, roll(dice, 10));
	case 7:
		epoll_ctl(epoll_fd, EPOLL_CTL_ADD, s, &event);
		number = epoll_wait(epoll_fd, events, 4, roll(dice, 5));
		if (!roll(dice, 3))
			epoll_ctl(epoll_fd, EPOLL_CTL_DEL, s, &event);
		return number;
	case 8:
		return roll(dice, slot < LISTENERS ? 300 : 30) ? 0 : shutdown(s, roll(dice, 3));
	case 9:
		if (roll(dice, slot < LISTENERS ? 300 : 12))
			return 0;
		if (slot >= LISTENERS)
			put(slot, new_socket(0));
		else if ((number = listen_again(&ours[slot])) >= 0)
			put(slot, number);
		return 0;
	case 10:
		switch (roll(dice, 6)) {
		case 0:
			return setsockopt(s, SOL_SOCKET, SO_RCVLOWAT, &number, sizeof(number));
		case 1:
			return setsockopt(s, SOL_SOCKET, SO_RCVBUF, &number, sizeof(number));
		case 2:
			return setsockopt(s, IPPROTO_TCP, TCP_ULP, "tls", 3);
		case 3:
			a_len = sizeof(value);
			return getsockopt(s, IPPROTO_TCP, TCP_INFO, value, &a_len);
		case 4:
			a_len = 36;
			return getsockopt(s, protocol, 1, value, &a_len);
		default:
			a_len = sizeof(number);
			return getsockopt(s, SOL_SOCKET, SO_ERROR, &number, &a_len);
		}
	case 11:
		return ioctl(s, FIONREAD, &number);
	case 12:
		return roll(dice, 2) ? getsockname(s, (void *)&a, &a_len) : getpeername(s, (void *)&a, &a_len);
	case 13:
		a.ss_family = AF_UNSPEC;
		return roll(dice, slot < LISTENERS ? 300 : 30) ? 0 : connect(s, (void *)&a, sizeof(a));
	case 14:
		splice(s, NULL, pipes[1], NULL, len, SPLICE_F_NONBLOCK);
		return splice(pipes[0], NULL, s, NULL, len, SPLICE_F_NONBLOCK);
	case 15:
		return slot < LISTENERS || roll(dice, 4) ? 0 : pass_on(dice, s);
	default:
		return writev(s, v, 3);
	}
}

static void *work(void *number)
{
	int me = (int)(long)number, call, slot;

	memset(threads[me].data, 'x', sizeof(threads[me].data));
	for (slot = 0; slot + sizeof(MARK) < 35000; slot += sizeof(MARK) - 1)
		memcpy(threads[me].data + slot, MARK, sizeof(MARK) - 1);
	while (!is_over) {
		call = roll(&threads[me].dice, CALLS);
		slot = roll(&threads[me].dice, SLOTS);
		threads[me].call = call;
		if (do_call(call, &threads[me].dice, slot, slots[slot], threads[me].data) < 0)
			threads[me].failed[call]++;
		else
			threads[me].done[call]++;
		threads[me].call = -1;
	}
	return NULL;
}

/* Peers that speak in clear, or not at all. */
static void play_strangers(int listening, unsigned long long dice)
{
	int s;

	for (;;) {
		s = socket(AF_INET6, SOCK_STREAM, 0);
		set_times(s);
		if (!connect(s, (void *)&ours[roll(&dice, LISTENERS)], sizeof(plain)))
			send(s, "GET / HTTP/1.0\r\n\r\n", roll(&dice, 18), MSG_NOSIGNAL);
		close(s);
		s = accept4(listening, NULL, NULL, SOCK_NONBLOCK);
		if (s >= 0 && roll(&dice, 2))
			send(s, "\x16\x03\x03\x00\x20", roll(&dice, 6), MSG_NOSIGNAL);
		usleep(roll(&dice, 20000));
		if (s >= 0)
			close(s);
	}
}

static void on_signal(int number)
{
}

static int is_before(const struct timespec *end)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec < end->tv_sec;
}

int main(int count, char **v)
{
	struct sigaction action = { .sa_handler = on_signal };	/* calls are interrupted */
	unsigned long long seed, dice;
	pthread_t ids[THREADS];
	struct timespec end;
	int i, listening, seconds;
	pid_t strangers;

	CHECK(count == 4);
	protocol = atoi(v[1]);
	dice = seed = strtoull(v[2], NULL, 0);
	seconds = atoi(v[3]);
	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGUSR1, &action, NULL);
	listening = listen_at(socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0), &plain);
	CHECK(listening >= 0);
	for (i = 0; i < SLOTS; i++)
		slots[i] = i < LISTENERS ? listen_again(&ours[i]) : new_socket(0);
	CHECK(slots[0] >= 0 && slots[SLOTS - 1] >= 0);
	strangers = fork();
	if (!strangers) {
		/* Not to be left over with their sockets, however this ends. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (i = 0; i < SLOTS; i++)
			close(slots[i]);
		play_strangers(listening, seed);
	}
	close(listening);
	epoll_fd = epoll_create1(0);
	CHECK(!socketpair(AF_UNIX, SOCK_DGRAM, 0, passing) && !pipe2(pipes, O_NONBLOCK));
	for (i = 0; i < THREADS; i++) {
		threads[i].dice = seed * THREADS + i;
		threads[i].call = -1;
		CHECK(!pthread_create(&ids[i], NULL, work, (void *)(long)i));
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	for (end.tv_sec += seconds; is_before(&end); usleep(20000)) {
		if (!roll(&dice, 4))
			pthread_kill(ids[roll(&dice, THREADS)], SIGUSR1);
	}
	is_over = 1;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += HANG;
	for (i = 0; i < THREADS; i++) {
		if (!pthread_timedjoin_np(ids[i], NULL, &end))
			continue;
		printf("a thread hangs in %s\n", threads[i].call < 0 ? "no call" : NAMES[threads[i].call]);
		fflush(stdout);
		_exit(1);
	}
	kill(strangers, SIGKILL);
	waitpid(strangers, NULL, 0);
	for (i = 0; i < CALLS; i++) {
		long done = 0, failed = 0;
		int t;

		for (t = 0; t < THREADS; t++) {
			done += threads[t].done[i];
			failed += threads[t].failed[i];
		}
		printf("%s %ld+%ld%s", NAMES[i], done, failed, i + 1 < CALLS ? ", " : "\n");
	}
	return 0;
}
