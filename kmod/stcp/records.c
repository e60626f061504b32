// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records, once keyed: kTLS makes and opens them; what a program never sees is dealt with here.
 *
 * Alerts end the stream, session tickets are dropped, a key update ends the connection (the
 * kernels we run on can't change keys), close_notify is sent before FIN, FIN without it is a
 * truncation, and no AES-GCM key protects more than it may (RFC 8446 §5.5).
 */
#include <linux/delay.h>
#include <net/tls.h>

#include "stcp.h"

enum { RECORD_ALERT = 21, RECORD_HANDSHAKE = 22, RECORD_DATA = 23 };
enum { ALERT_CLOSE_NOTIFY = 0, ALERT_BAD_RECORD_MAC = 20, ALERT_USER_CANCELED = 90 };
enum { MESSAGE_TICKET = 4, MESSAGE_KEY_UPDATE = 24 };

#define CMSG_ROOM CMSG_SPACE(sizeof(u8))

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

/* One byte of a control record. False: the connection is over, `end` says how. */
static bool stcp_control_byte(struct stcp *st, u8 type, u8 byte)
{
	const char *what = "sent a record that is not allowed";

	if (type == RECORD_HANDSHAKE && st->message_left) {
		st->message_left--;
		return true;
	}
	if (type == RECORD_ALERT || type == RECORD_HANDSHAKE) {
		st->head[st->head_len++] = byte;
		if (st->head_len < (type == RECORD_ALERT ? 2 : sizeof(st->head)))
			return true;
		st->head_len = 0;
	}
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
	if (type == RECORD_HANDSHAKE) {
		st->message_left = st->head[1] << 16 | st->head[2] << 8 | st->head[3];
		if (st->head[0] == MESSAGE_TICKET && !st->server)
			return true;
		if (st->head[0] == MESSAGE_KEY_UPDATE)
			what = "wants new keys, which this kernel can't change";
	}
	pr_info_ratelimited("the peer of pid %u %s: the connection ends\n", st->pid, what);
	WRITE_ONCE(st->end, -EPROTO);
	return false;
}

/* Reads into memory of ours. Returns the length and the type of the record, or an errno. */
static int stcp_read_own(struct stcp *st, u8 *buf, size_t len, int flags, u8 *type)
{
	u8 room[CMSG_ROOM] __aligned(sizeof(size_t)) = {};
	struct msghdr m = { .msg_control = room, .msg_controllen = sizeof(room) };
	struct cmsghdr *c = (struct cmsghdr *)room;
	struct kvec v = { .iov_base = buf, .iov_len = len };
	int n;

	iov_iter_kvec(&m.msg_iter, ITER_DEST, &v, 1, len);
	n = st->base->recvmsg(st->sock, &m, len, flags | MSG_DONTWAIT);
	*type = c->cmsg_len ? *(u8 *)CMSG_DATA(c) : 0;
	return n;
}

/* Deals with a control record if one is next. 1: done, 0: none is there, or an errno. */
static int stcp_take_control(struct stcp *st)
{
	u8 buf[64], type, again;
	int n, i;

	mutex_lock(&st->control);
	n = stcp_read_own(st, buf, 1, MSG_PEEK, &type);
	if (n > 0 && type == RECORD_DATA)
		n = 0;
	if (n > 0)
		n = stcp_read_own(st, buf, sizeof(buf), 0, &again);
	for (i = 0; i < n && stcp_control_byte(st, type, buf[i]); i++)
		;
	mutex_unlock(&st->control);
	if (READ_ONCE(st->end) < 0)
		stcp_send_close(st);
	return n > 0 ? 1 : n == -EAGAIN ? 0 : n;
}

/* What a read that moved nothing means to the program. */
static int stcp_why(struct stcp *st, int n)
{
	struct sock *sk = st->sock->sk;
	int end = READ_ONCE(st->end);

	if (end)
		return min(end, 0);
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
	case -EIO:
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

int stcp_receive(struct stcp *st, struct msghdr *m, size_t len, int flags)
{
	void *control = m->msg_control;
	size_t control_len = m->msg_controllen;
	unsigned int compat = m->msg_flags & MSG_CMSG_COMPAT;
	int n, taken = 0, tries = 0;

	if (flags & MSG_OOB)
		return -EINVAL;
	if (flags & MSG_TRUNC && !(flags & MSG_PEEK))
		iov_iter_discard(&m->msg_iter, ITER_DEST, len);
	do {
		if (READ_ONCE(st->end))
			return len ? stcp_why(st, 0) : 0;
		/* Without room for a control message kTLS keeps a control record and answers EIO. */
		m->msg_control = NULL;
		m->msg_controllen = 0;
		n = st->base->recvmsg(st->sock, m, len, flags & ~(MSG_CMSG_COMPAT | MSG_TRUNC));
		m->msg_control = control;
		m->msg_controllen = control_len;
		m->msg_flags = (m->msg_flags & ~(MSG_CTRUNC | MSG_EOR)) | compat;
		if (n != -EIO)
			break;
		taken = stcp_take_control(st);	/* 0: another thread was faster */
	} while (taken >= 0 && (taken || tries++ < 1000));
	/* A record of p bytes has p+22 on the wire and takes p/16+2 blocks at most: 3/32 bounds both. */
	if (n > 0 && stcp_is_beyond(st, READ_ONCE(tcp_sk(st->sock->sk)->bytes_received) / 32 * 3))
		WRITE_ONCE(st->end, -EPROTO);
	return n > 0 || !len ? n : stcp_why(st, taken < 0 ? taken : n);
}

/*
 * How many bytes, of so many, a read would get at once. 0: it would meet the stream's end. EAGAIN:
 * it would wait, even where kTLS says otherwise as a session ticket has come.
 */
int stcp_peek(struct stcp *st, size_t len)
{
	struct msghdr m = {};
	int n;

	do {
		if (READ_ONCE(st->end))
			return 0;
		iov_iter_discard(&m.msg_iter, ITER_DEST, len);
		n = st->base->recvmsg(st->sock, &m, len, MSG_PEEK | MSG_DONTWAIT);
	} while (n == -EIO && stcp_take_control(st) > 0);
	return n;
}

/* close_notify, once: the peer can tell the end of the stream from a truncation. */
void stcp_send_close(struct stcp *st)
{
	if (xchg(&st->close_sent, true))
		return;
	/* What lies unread must be no more than data, or TCP answers close() with RST. */
	stcp_peek(st, 1);
	stcp_send_alert(st, 1, ALERT_CLOSE_NOTIFY);
}
