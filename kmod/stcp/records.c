// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records, once keyed: kTLS makes and opens them; what a program never sees is dealt with here.
 *
 * Alerts end the stream, session tickets are dropped, a key update ends the connection (the
 * kernels we run on can't change keys), close_notify is sent before FIN, FIN without it is a
 * truncation, and no AES-GCM key protects more than it may (RFC 8446 §5.5).
 *
 * Reading. kTLS's recvmsg goes on inside while records without data come, its peek keeps every
 * record it passes and charges nobody for them, and a reader that waits there shuts out whoever
 * polls. So records are opened here one at a time, under a mutex that nobody holds while waiting
 * for the peer, and their data waits in a queue of ours: recv, peek, poll and FIONREAD look there.
 * The queue has one record, or as much as the receive buffer where a program asks for more than it
 * takes. A peer whose records carry no data is cut off, so each of these calls ends.
 */
#include <linux/delay.h>
#include <net/strparser.h>
#include <net/tls.h>
#include <linux/splice.h>	/* needs what those include */

#include "stcp.h"

enum { RECORD_ALERT = 21, RECORD_HANDSHAKE = 22, RECORD_DATA = 23 };
enum { ALERT_CLOSE_NOTIFY = 0, ALERT_BAD_RECORD_MAC = 20, ALERT_USER_CANCELED = 90 };
enum { MESSAGE_TICKET = 4, MESSAGE_KEY_UPDATE = 24 };

#define CMSG_ROOM CMSG_SPACE(sizeof(u8))

/*
 * What a peer may send beside data. The library's numbers, and stcp_gcm_blocks as well (crates/stcp:
 * limits.rs, post_handshake.rs); a test of xtask compares them.
 */
/* Records in a row that carry no data, before the peer is taken to play games. */
#define STCP_WITHOUT_DATA 32
/* Longest message after the handshake: a ticket has about 300 bytes. */
#define STCP_MAX_MESSAGE (16 * 1024)
/* Records that are opened before others get their turn, and signals are looked for. */
#define STCP_TURN 256
/* Records that a call opens although it has all it must have. */
#define STCP_MANY 4096
/* Data of many small records is copied together into blocks of so many bytes. */
#define STCP_BLOCK SZ_16K

#ifndef MSG_SPLICE_PAGES		/* before 6.5 */
#define MSG_SPLICE_PAGES 0
#endif

static void stcp_send_alert(struct stcp *st, u8 level, u8 description)
{
	struct sock *sk = st->sock->sk;
	u8 room[CMSG_ROOM] __aligned(sizeof(size_t)) = {}, alert[2] = { level, description };
	struct msghdr m = {
		.msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL,
		.msg_control = room,
		.msg_controllen = sizeof(room),
	};
	struct cmsghdr *c = (struct cmsghdr *)room;
	struct kvec v = { .iov_base = alert, .iov_len = sizeof(alert) };
	struct mutex *sending = &tls_get_ctx(sk)->tx_lock;

	/* A sender that waits for the peer to read holds it: that cuts the stream off anyway. */
	for (; !mutex_trylock(sending); usleep_range(100, 1000))
		if (READ_ONCE(sk->sk_write_pending) || signal_pending(current))
			return;
	mutex_unlock(sending);
	/* Room for it, and for a record that kTLS could send only in part: close() can't wait. */
	lock_sock(sk);
	sk->sk_userlocks |= SOCK_SNDBUF_LOCK;
	WRITE_ONCE(sk->sk_sndbuf, max(sk->sk_sndbuf, sk->sk_wmem_queued + SZ_256K));
	release_sock(sk);
	c->cmsg_level = SOL_TLS;
	c->cmsg_type = TLS_SET_RECORD_TYPE;
	c->cmsg_len = CMSG_LEN(sizeof(u8));
	*(u8 *)CMSG_DATA(c) = RECORD_ALERT;
	iov_iter_kvec(&m.msg_iter, ITER_SOURCE, &v, 1, sizeof(alert));
	st->base->sendmsg(st->sock, &m, sizeof(alert));
}

/* Blocks of AES for so many bytes in one call: at least one record, none larger than 16 KiB. */
static u64 stcp_blocks(size_t len)
{
	return len / 16 + 1 + 2 * (len / TLS_MAX_PAYLOAD_SIZE + 1);
}

/* Ends our direction if that many blocks are too many for a key. */
static bool stcp_is_beyond(struct stcp *st, u64 blocks)
{
	if (st->peer.cipher == TLS_CIPHER_CHACHA20_POLY1305 || blocks <= READ_ONCE(stcp_gcm_blocks))
		return false;
	if (!READ_ONCE(st->close_sent)) {
		atomic_long_inc(&stcp_counters.key_limits_reached);
		pr_warn_ratelimited("a connection of pid %u has reached the limit of its AES-GCM key and ends\n",
				    st->pid);
		stcp_send_close(st);
		st->base->shutdown(st->sock, SHUT_WR);
	}
	return true;
}

int stcp_send(struct stcp *st, struct msghdr *m, size_t len)
{
	struct sock *sk = st->sock->sk;
	u64 blocks = stcp_blocks(len);
	int n;

	if (stcp_is_beyond(st, atomic64_add_return(blocks, &st->sent_blocks)) ||
	    READ_ONCE(st->close_sent))
		return sk_stream_error(sk, m->msg_flags, -EPIPE);
	/* kTLS refuses what TCP ignores. */
	m->msg_flags &= MSG_MORE | MSG_DONTWAIT | MSG_NOSIGNAL | MSG_SPLICE_PAGES;
	m->msg_controllen = 0;		/* a program must not choose the type of its records */
	n = st->base->sendmsg(st->sock, m, len);
	if (n < (ssize_t)len)
		atomic64_sub(blocks - (n > 0 ? stcp_blocks(n) : 0), &st->sent_blocks);
	return n;
}

/* The peer has done what it may not. */
static void stcp_refuse(struct stcp *st, const char *what)
{
	pr_info_ratelimited("the peer of pid %u %s: the connection ends\n", st->pid, what);
	WRITE_ONCE(st->end, -EPROTO);
}

/* One byte of a control record. False: the connection is over, `end` says how. */
static bool stcp_control_byte(struct stcp *st, u8 type, u8 byte)
{
	if (type == RECORD_HANDSHAKE && st->message_left) {
		st->message_left--;
		return true;
	}
	st->head[st->head_len++] = byte;
	if (st->head_len < (type == RECORD_ALERT ? 2 : sizeof(st->head)))
		return true;
	st->head_len = 0;
	if (type == RECORD_ALERT) {
		if (byte == ALERT_USER_CANCELED)
			return true;
		if (byte == ALERT_CLOSE_NOTIFY) {
			WRITE_ONCE(st->end, 1);
			return false;
		}
		pr_info_ratelimited("the peer of pid %u ended the connection with TLS alert %u\n", st->pid, byte);
		WRITE_ONCE(st->end, -EPROTO);
		return false;
	}
	st->message_left = st->head[1] << 16 | st->head[2] << 8 | st->head[3];
	if (st->message_left > STCP_MAX_MESSAGE) {
		stcp_refuse(st, "sent a handshake message longer than 16 KiB");
		return false;
	}
	if (st->head[0] == MESSAGE_TICKET && !st->server)
		return true;
	stcp_refuse(st, st->head[0] == MESSAGE_KEY_UPDATE ?
		    "wants new keys, which this kernel can't change" : "sent a message that is not allowed");
	return false;
}

/* A record that is not data. */
static void stcp_control(struct stcp *st, struct sk_buff *skb, u8 type)
{
	int len = strp_msg(skb)->full_len, at, n, i;
	u8 buf[64];

	if (!len || (type != RECORD_ALERT && type != RECORD_HANDSHAKE))
		return stcp_refuse(st, "sent a record that is not allowed");
	st->inside = type;
	for (at = 0; at < len; at += n) {
		n = min_t(int, len - at, sizeof(buf));
		if (skb_copy_bits(skb, strp_msg(skb)->offset + at, buf, n))
			return stcp_refuse(st, "sent a record that can't be read");
		for (i = 0; i < n; i++)
			if (!stcp_control_byte(st, type, buf[i]))
				return;
	}
	if (!st->head_len && !st->message_left)
		st->inside = 0;
}

/* What a read that opened nothing means to the program: 0 at the stream's end, or an errno. */
static int stcp_why(struct stcp *st, int n)
{
	struct sock *sk = st->sock->sk;

	switch (n) {
	case 0:
		if (READ_ONCE(st->read_shut))
			return 0;
		/* FIN without close_notify: data may be missing. */
		WRITE_ONCE(st->end, -ECONNRESET);
		return -ECONNRESET;
	case -EBADMSG:
	case -EMSGSIZE:
	case -EINVAL:
		pr_info_ratelimited("pid %u received a record that is damaged or forged: the connection ends\n", st->pid);
		WRITE_ONCE(st->end, -EPROTO);
		sock_error(sk);		/* kTLS left one, and sends nothing until it is gone */
		if (!xchg(&st->close_sent, true))
			stcp_send_alert(st, 2, ALERT_BAD_RECORD_MAC);
		tcp_abort(sk, EPROTO);
		return -EPROTO;
	default:
		return n;
	}
}

/* Records opened so far, as kTLS counts them for its nonces. */
static __be64 stcp_number(const struct stcp *st)
{
	__be64 number;

	memcpy(&number, tls_get_ctx(st->sock->sk)->rx.rec_seq, sizeof(number));
	return number;
}

/*
 * Opens the next record, if it has come: 1, and the record unless kTLS has dropped it as it was
 * empty; 0 at FIN; or an errno. kTLS's splice_read, asked for no bytes, opens one record at most and
 * leaves it at the head of its list. It touches no pipe for that.
 */
static int stcp_open(struct stcp *st, struct sk_buff **skb)
{
	__be64 before = stcp_number(st);
	loff_t at = 0;
	int rc = st->base->splice_read(st->sock, &at, NULL, 0, SPLICE_F_NONBLOCK);

	*skb = skb_dequeue(&tls_sw_ctx_rx(tls_get_ctx(st->sock->sk))->rx_list);
	return *skb || stcp_number(st) != before ? 1 : rc;
}

/*
 * Puts data behind what waits already. Behind another one it is copied together, as a record of one
 * byte has a page of its own.
 */
static void stcp_keep(struct stcp *st, struct sk_buff *skb)
{
	struct strp_msg *from = strp_msg(skb);
	struct sk_buff *to;
	int n;

	st->opened_len += from->full_len;
	while (from->full_len && !skb_queue_empty(&st->opened)) {
		to = skb_peek_tail(&st->opened);
		if (!skb_tailroom(to)) {	/* kTLS's never have any */
			to = alloc_skb(STCP_BLOCK, GFP_KERNEL_ACCOUNT);
			if (!to)
				break;
			memset(to->cb, 0, sizeof(to->cb));
			__skb_queue_tail(&st->opened, to);
		}
		n = min(from->full_len, skb_tailroom(to));
		skb_copy_bits(skb, from->offset, skb_put(to, n), n);
		strp_msg(to)->full_len += n;
		from->offset += n;
		from->full_len -= n;
	}
	if (from->full_len)
		__skb_queue_tail(&st->opened, skb);
	else
		consume_skb(skb);
}

/* Deals with the record that was opened; NULL is one without data. */
static void stcp_sort(struct stcp *st, struct sk_buff *skb)
{
	u8 type = skb ? ((struct sk_skb_cb *)skb->cb)->tls.control : RECORD_DATA;
	bool has_data = type == RECORD_DATA && skb && strp_msg(skb)->full_len;

	st->without_data = has_data ? 0 : st->without_data + 1;
	if (st->inside && type != st->inside)
		stcp_refuse(st, "sent a record inside a handshake message");
	else if (st->without_data > STCP_WITHOUT_DATA)
		stcp_refuse(st, "sent too many records without data in a row");
	else if (type != RECORD_DATA)
		stcp_control(st, skb, type);
	if (has_data && !READ_ONCE(st->end))
		stcp_keep(st, skb);
	else
		kfree_skb(skb);
	/* A record of p bytes has p+22 on the wire and takes p/16+2 blocks at most: 3/32 bounds both. */
	if (stcp_is_beyond(st, READ_ONCE(tcp_sk(st->sock->sk)->bytes_received) / 32 * 3))
		cmpxchg(&st->end, 0, -EPROTO);
	if (READ_ONCE(st->end) < 0)
		stcp_send_close(st);
}

/*
 * Opens records until so much data waits, or one turn's worth of records is opened: 1. Or until
 * there are no more: 0 at the stream's end, EAGAIN, or an errno. Called with `reading` held.
 */
static int stcp_fill(struct stcp *st, size_t want)
{
	struct sk_buff *skb;
	int rc, turn;

	for (turn = 0; st->opened_len < want && turn < STCP_TURN; turn++) {
		if (READ_ONCE(st->end))
			return min(READ_ONCE(st->end), 0);
		rc = stcp_open(st, &skb);
		if (rc <= 0)
			return stcp_why(st, rc);
		stcp_sort(st, skb);
	}
	return 1;
}

/* The most data that waits here. */
static size_t stcp_room(const struct stcp *st)
{
	return clamp(READ_ONCE(st->sock->sk->sk_rcvbuf), SZ_64K, SZ_1M);
}

/* An error of TCP's that was met where nobody is told: the next one who reads is. */
static int stcp_unmeet(struct stcp *st, int rc)
{
	if (rc < 0 && rc != -EAGAIN && !READ_ONCE(st->end))
		WRITE_ONCE(st->sock->sk->sk_err, -rc);
	return rc;
}

/* Copies what waits into the message, and takes it off the queue unless it is peeked at. */
static int stcp_copy(struct stcp *st, struct msghdr *m, size_t len, bool peek)
{
	struct sk_buff *skb, *next;
	int copied = 0, n;

	skb_queue_walk_safe(&st->opened, skb, next) {
		struct strp_msg *from = strp_msg(skb);

		n = min_t(size_t, len - copied, from->full_len);
		if (!n)
			break;
		if (skb_copy_datagram_msg(skb, from->offset, m, n))
			return copied ?: -EFAULT;
		copied += n;
		if (peek)
			continue;
		from->offset += n;
		from->full_len -= n;
		st->opened_len -= n;
		if (!from->full_len) {
			__skb_unlink(skb, &st->opened);
			consume_skb(skb);
		}
	}
	return copied;
}

/*
 * Waits until there may be more to read. EAGAIN when the time is up. Called with `reading` held, which
 * it lets go: a wake-up counts from here on, even if somebody else opens the record that it was for.
 */
static int stcp_wait(struct stcp *st, long *timeo)
{
	struct sock *sk = st->sock->sk;
	DEFINE_WAIT_FUNC(wait, woken_wake_function);
	bool ready;
	int rc = 0;

	add_wait_queue(sk_sleep(sk), &wait);
	ready = sk_is_readable(sk) || READ_ONCE(st->end) || READ_ONCE(sk->sk_err) ||
		READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN;
	mutex_unlock(&st->reading);
	/* What is there comes before a signal. */
	if (!ready && signal_pending(current))
		rc = sock_intr_errno(*timeo);
	else if (!ready && !(*timeo = wait_woken(&wait, TASK_INTERRUPTIBLE, *timeo)))
		rc = -EAGAIN;
	remove_wait_queue(sk_sleep(sk), &wait);
	return rc;
}

int stcp_receive(struct stcp *st, struct msghdr *m, size_t len, int flags)
{
	struct sock *sk = st->sock->sk;
	bool peek = flags & MSG_PEEK;
	long timeo = sock_rcvtimeo(sk, flags & MSG_DONTWAIT);
	size_t target, done = 0, had;
	int rc = 0, n, given_up = 0, opened = 0;
	bool goes_on, ends;

	if (flags & MSG_OOB)
		return -EINVAL;
	if (peek)
		len = min(len, stcp_room(st));
	else if (flags & MSG_TRUNC)
		iov_iter_discard(&m->msg_iter, ITER_DEST, len);
	target = flags & MSG_WAITALL ? len : min_t(size_t, len, READ_ONCE(st->lowat));
	m->msg_namelen = 0;
	while (done < len) {
		if (mutex_lock_killable(&st->reading)) {
			rc = -ERESTARTSYS;
			break;
		}
		rc = stcp_fill(st, peek ? len : 1);
		had = st->opened_len;
		opened += peek ? STCP_TURN : 1;
		goes_on = rc > 0 && opened < STCP_MANY;
		/* What is peeked at is copied once, when no more of it is to be had. */
		n = !peek || had >= len || given_up ||
		    (!goes_on && (had >= target || !timeo || rc != -EAGAIN)) ?
			stcp_copy(st, m, len - done, peek) : 0;
		if (n < 0)
			rc = n;
		else
			done += n;
		ends = (peek && n) || (rc <= 0 && rc != -EAGAIN) ||
		       (!goes_on && (done >= target || !timeo || given_up));
		if (!ends && rc == -EAGAIN) {
			n = stcp_wait(st, &timeo);
		} else {
			mutex_unlock(&st->reading);
			n = signal_pending(current) ? sock_intr_errno(timeo) : 0;
		}
		if (ends)
			break;
		cond_resched();
		if (n && !peek) {
			rc = n;
			break;
		}
		given_up = n;		/* a peek takes a last look */
	}
	if (!done)
		return given_up ?: min(rc, 0);
	if (rc != -EFAULT && rc != -EINTR && rc != -ERESTARTSYS)
		stcp_unmeet(st, rc);
	return done;
}

/* What poll() says of the socket. Called with nothing held. */
__poll_t stcp_poll_records(struct stcp *st, struct file *file)
{
	size_t want = min_t(size_t, READ_ONCE(st->lowat), stcp_room(st));
	__poll_t mask;
	bool has;

	/* Who opens records has them neither here nor in kTLS for a moment. */
	if (mutex_lock_killable(&st->reading))
		return EPOLLIN | EPOLLRDNORM;
	mask = st->base->poll(file, st->sock, NULL);
	has = mask & EPOLLIN;
	if (has && !(mask & EPOLLERR))
		has = stcp_unmeet(st, stcp_fill(st, want)) != -EAGAIN;
	has |= st->opened_len >= want || READ_ONCE(st->end);
	mutex_unlock(&st->reading);
	mask &= ~(EPOLLIN | EPOLLRDNORM);
	if (has)
		mask |= EPOLLIN | EPOLLRDNORM;
	return READ_ONCE(st->end) > 0 ? mask | EPOLLRDHUP : mask;
}

/* How many bytes a read would get at once. */
int stcp_count(struct stcp *st)
{
	int n, opened;

	if (mutex_lock_killable(&st->reading))
		return 0;
	for (opened = 0; opened < STCP_MANY && !signal_pending(current); opened += STCP_TURN)
		if (stcp_unmeet(st, stcp_fill(st, stcp_room(st))) <= 0 || st->opened_len >= stcp_room(st))
			break;
	n = st->opened_len;
	mutex_unlock(&st->reading);
	return n;
}

/*
 * The program goes, and what has come meanwhile goes as it is. Nothing is opened for that; but TCP
 * would answer close() with RST over an unread session ticket, and our last bytes would be lost.
 */
void stcp_drop_unread(struct stcp *st)
{
	struct sock *sk = st->sock->sk;
	struct msghdr m = {};
	int unread, namelen;

	lock_sock(sk);
	unread = tcp_inq(sk);
	release_sock(sk);
	if (unread > 0)
		tcp_prot.recvmsg(sk, &m, unread, MSG_TRUNC | MSG_DONTWAIT, &namelen);
}

/* close_notify, once: the peer can tell the end of the stream from a truncation. */
void stcp_send_close(struct stcp *st)
{
	if (!xchg(&st->close_sent, true))
		stcp_send_alert(st, 1, ALERT_CLOSE_NOTIFY);
}
