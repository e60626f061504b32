// SPDX-License-Identifier: GPL-2.0-only
/*
 * The operations of the program's socket: TCP's, gated.
 *
 * Before both keys are in, nothing that moves data reaches TCP: it waits, or answers EAGAIN.
 * Whatever could take the socket out of our hands (another ULP, repair, IPV6_ADDRFORM, fast
 * open) is refused.
 */
#include <linux/poll.h>
#include <linux/sockios.h>
#include <linux/splice.h>
#include <linux/uaccess.h>
#include <asm/ioctls.h>

#include "stcp.h"

/* The socket's object, made when it first connects or listens. */
struct stcp *stcp_ensure(struct socket *sock)
{
	struct stcp *st = stcp_of(sock);

	if (st)
		return st;
	st = stcp_new(sock, NULL);
	return st == ERR_PTR(-EBUSY) ? stcp_of(sock) : st;	/* another thread's */
}

/* The operations beneath ours. */
static const struct proto_ops *stcp_base(const struct socket *sock)
{
	struct stcp *st = stcp_of(sock);

	return st ? READ_ONCE(st->base) : stcp_tcp_ops(sock->sk);
}

/* connect() to AF_UNSPEC: no connection, nor listener, is there afterwards. */
static int stcp_disconnect(struct socket *sock, struct sockaddr *addr, int len, int flags)
{
	struct stcp *st = stcp_of(sock);
	int rc = -EOPNOTSUPP;		/* the keys are this connection's */

	if (!st)
		return stcp_base(sock)->connect(sock, addr, len, flags);
	mutex_lock(&st->lock);
	stcp_stop_listening(st);
	if (st->state == STCP_FRESH)
		rc = st->base->connect(sock, addr, len, flags);
	mutex_unlock(&st->lock);
	return rc;
}

/* TCP's part of connect(): 0 once it is up and the agent is asked, or it has failed for good. */
static int stcp_connect_tcp(struct stcp *st, struct sockaddr *addr, int len, int flags)
{
	int rc = 0;

	/* A call that comes second waits here for the first one's outcome, or not at all. */
	if (!(flags & O_NONBLOCK))
		rc = mutex_lock_interruptible(&st->connecting) ? -ERESTARTSYS : 0;
	else if (!mutex_trylock(&st->connecting))
		rc = -EALREADY;
	if (rc)
		return rc;
	if (stcp_state(st) == STCP_FRESH) {
		mutex_lock(&st->lock);
		stcp_set_user(st);
		mutex_unlock(&st->lock);
		rc = st->base->connect(st->sock, addr, len, flags);
		/* To TCP the first call has connected it. */
		if (rc == -EISCONN && stcp_state(st) != STCP_LISTENING)
			rc = 0;
		mutex_lock(&st->lock);
		if (!rc)
			stcp_look(st);
		/* The handshake's outcome was there before this thread: TCP says no more than that it is gone. */
		if (st->state == STCP_FAILED)
			rc = 0;
		mutex_unlock(&st->lock);
	}
	mutex_unlock(&st->connecting);
	return rc;
}

static int stcp_connect(struct socket *sock, struct sockaddr *addr, int len, int flags)
{
	long timeo = sock_sndtimeo(sock->sk, flags & O_NONBLOCK);
	enum stcp_state state;
	struct stcp *st;
	int rc;

	if (len >= (int)sizeof(addr->sa_family) && addr->sa_family == AF_UNSPEC)
		return stcp_disconnect(sock, addr, len, flags);
	st = stcp_ensure(sock);
	if (IS_ERR(st))
		return PTR_ERR(st);
	state = stcp_state(st);
	if (state == STCP_FRESH) {
		rc = stcp_connect_tcp(st, addr, len, flags);
		if (rc)
			return rc;
	} else if (state == STCP_LISTENING || st->told) {
		return -EISCONN;
	} else if (!timeo && state < STCP_KEYED) {
		return -EALREADY;
	}
	rc = stcp_await(st, timeo);
	if (rc == -EAGAIN)
		return -EINPROGRESS;
	if (rc)
		sock_error(sock->sk);	/* told: SO_ERROR need not tell it again */
	else
		st->told = true;
	return rc;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static int stcp_accept(struct socket *sock, struct socket *newsock, struct proto_accept_arg *arg)
{
	return stcp_take_child(sock, newsock, arg->flags);
}
#else
static int stcp_accept(struct socket *sock, struct socket *newsock, int flags, bool kern)
{
	return stcp_take_child(sock, newsock, flags);
}
#endif

static int stcp_sendmsg(struct socket *sock, struct msghdr *m, size_t len)
{
	struct stcp *st = stcp_of(sock);
	int rc = -ENOTCONN;

	if (m->msg_flags & (MSG_FASTOPEN | MSG_OOB | MSG_ZEROCOPY))
		return -EOPNOTSUPP;
	if (st)
		rc = stcp_await(st, sock_sndtimeo(sock->sk, m->msg_flags & MSG_DONTWAIT));
	if (rc == -ENOTCONN)
		return sk_stream_error(sock->sk, m->msg_flags, -EPIPE);
	return rc ?: stcp_send(st, m, len);
}

static int stcp_recvmsg(struct socket *sock, struct msghdr *m, size_t len, int flags)
{
	struct stcp *st = stcp_of(sock);
	int rc = -ENOTCONN;

	if (flags & MSG_ERRQUEUE)	/* no data there */
		return stcp_base(sock)->recvmsg(sock, m, len, flags);
	if (st)
		rc = stcp_await(st, sock_rcvtimeo(sock->sk, flags & MSG_DONTWAIT));
	return rc ?: stcp_receive(st, m, len, flags);
}

/* By way of recvmsg: kTLS's own refuses control records, and loses what a full pipe can't take. */
static ssize_t stcp_splice_read(struct socket *sock, loff_t *pos, struct pipe_inode_info *pipe,
				size_t len, unsigned int flags)
{
	struct stcp *st = stcp_of(sock);
	int rc = st && flags & SPLICE_F_NONBLOCK ? stcp_await(st, 0) : 0;

	if (rc)
		return rc;
	if (st && flags & SPLICE_F_NONBLOCK && !(stcp_poll_records(st, sock->file) & EPOLLIN))
		return -EAGAIN;
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	return copy_splice_read(sock->file, pos, pipe, len, flags);
#else
	return generic_file_splice_read(sock->file, pos, pipe, len, flags);
#endif
}

static __poll_t stcp_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	struct stcp *st = stcp_of(sock);
	enum stcp_state state = st ? stcp_state(st) : STCP_FRESH;
	__poll_t mask;

	mask = stcp_base(sock)->poll(file, sock, wait);
	if (state == STCP_LISTENING && READ_ONCE(sock->sk->sk_state) == TCP_LISTEN)
		return READ_ONCE(st->children_len[1]) ? EPOLLIN | EPOLLRDNORM : 0;
	/* TCP may have come up, and the keys in, while it looked. */
	if (st)
		state = stcp_state(st);
	if (state == STCP_FAILED || READ_ONCE(sock->sk->sk_state) == TCP_CLOSE)
		return mask;
	if (state != STCP_KEYED)
		return mask & (EPOLLERR | EPOLLHUP);
	return stcp_poll_records(st, file);
}

static int stcp_shutdown(struct socket *sock, int how)
{
	struct stcp *st = stcp_of(sock);
	bool gave_up;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	if (st) {
		mutex_lock(&st->lock);
		/* As with TCP, a listener does not end by SHUT_WR. */
		gave_up = (how != SHUT_WR || st->state != STCP_LISTENING) && stcp_give_up(st);
		mutex_unlock(&st->lock);
		if (gave_up)
			return 0;
		if (stcp_state(st) == STCP_KEYED) {
			if (how != SHUT_RD)
				stcp_send_close(st);
			if (how != SHUT_WR)
				WRITE_ONCE(st->read_shut, true);
		}
	}
	return stcp_base(sock)->shutdown(sock, how);
}

static int stcp_ioctl(struct socket *sock, unsigned int cmd, unsigned long arg)
{
	struct stcp *st = stcp_of(sock);

	/* TCP would count the bytes of records, and of the handshake. */
	if (cmd == SIOCINQ && st && stcp_state(st) >= STCP_QUEUED)
		return put_user(stcp_state(st) == STCP_KEYED ? stcp_count(st) : 0,
				(int __user *)arg);
	return stcp_base(sock)->ioctl(sock, cmd, arg);
}

static bool stcp_refuses(int level, int name, bool set)
{
	switch (level) {
	case SOL_TLS:
		return true;
	case SOL_TCP:
		return name == TCP_ZEROCOPY_RECEIVE ||
		       (set && (name == TCP_ULP || name == TCP_REPAIR || name == TCP_FASTOPEN ||
				name == TCP_FASTOPEN_CONNECT));
	case SOL_IPV6:
		return set && name == IPV6_ADDRFORM;	/* it would put TCP's operations back */
	default:
		return false;
	}
}

static int stcp_setsockopt(struct socket *sock, int level, int name, sockptr_t value,
			   unsigned int len)
{
	if (stcp_refuses(level, name, true))
		return -EOPNOTSUPP;
	if (level == stcp_protocol)
		return -ENOPROTOOPT;
	return sock_common_setsockopt(sock, level, name, value, len);
}

static int stcp_getsockopt(struct socket *sock, int level, int name, char __user *value,
			   int __user *optlen)
{
	struct stcp *st = stcp_of(sock);
	int len;

	if (stcp_refuses(level, name, false))
		return -EOPNOTSUPP;
	if (level != stcp_protocol)
		return sock_common_getsockopt(sock, level, name, value, optlen);
	if (name != STCP_PEER)
		return -ENOPROTOOPT;
	if (!st || stcp_state(st) != STCP_KEYED)
		return -ENOTCONN;
	if (get_user(len, optlen))
		return -EFAULT;
	if (len < 0)
		return -EINVAL;
	len = min_t(int, len, sizeof(st->peer));
	return put_user(len, optlen) || copy_to_user(value, &st->peer, len) ? -EFAULT : 0;
}

static int stcp_release(struct socket *sock)
{
	struct stcp *st = sock->sk ? stcp_of(sock) : NULL;
	const struct proto_ops *base = sock->sk ? stcp_base(sock) : &inet_stream_ops;

	if (st) {
		if (stcp_state(st) == STCP_KEYED) {
			stcp_send_close(st);
			stcp_drop_unread(st);
		}
		mutex_lock(&st->lock);
		stcp_give_up(st);
		if (st->state == STCP_FRESH)
			remove_wait_queue(&sock->wq.wait, &st->watch);
		base = st->base;
		st->sock = NULL;
		sock->sk->sk_user_data = NULL;
		mutex_unlock(&st->lock);
		stcp_put(st);
	}
	return base->release(sock);
}

/* Called by setsockopt() with the socket locked. TCP makes room for so much. */
static int stcp_set_rcvlowat(struct sock *sk, int value)
{
	struct stcp *st = stcp_of_sk(sk);
	int rc = inet_stream_ops.set_rcvlowat(sk, value);

	if (st) {
		WRITE_ONCE(st->lowat, sk->sk_rcvlowat);
		WRITE_ONCE(sk->sk_rcvlowat, 1);
		/* What waits here may be enough now: TCP, which would wake, knows nothing of it. */
		sk->sk_state_change(sk);
	}
	return rc;
}

/* `ops` are TCP's and become ours. read_sock stays: kTLS calls it through the socket. */
void stcp_wrap_ops(struct proto_ops *ops)
{
	ops->owner = THIS_MODULE;
	ops->release = stcp_release;
	ops->connect = stcp_connect;
	ops->listen = stcp_listen;
	ops->accept = stcp_accept;
	ops->sendmsg = stcp_sendmsg;
	ops->recvmsg = stcp_recvmsg;
	ops->splice_read = stcp_splice_read;
	ops->poll = stcp_poll;
	ops->shutdown = stcp_shutdown;
	ops->ioctl = stcp_ioctl;
	ops->setsockopt = stcp_setsockopt;
	ops->getsockopt = stcp_getsockopt;
	ops->set_rcvlowat = stcp_set_rcvlowat;
	ops->set_peek_off = NULL;	/* of TCP's since 6.10: what is peeked at here it has not */
	ops->mmap = sock_no_mmap;
	ops->read_skb = NULL;
	ops->sendmsg_locked = NULL;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
	ops->sendpage = sock_no_sendpage;	/* it comes back as sendmsg */
	ops->sendpage_locked = NULL;
#endif
}
