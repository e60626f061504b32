// SPDX-License-Identifier: GPL-2.0-only
/*
 * A listening socket: children leave TCP's queue as they come, shake hands side by side, and
 * only those that are done are there for accept().
 *
 * A child lives in a struct socket of ours until a program takes it. Lists and counts are under
 * the listener's spinlock; being on a list is the list's reference to the child. Lock order:
 * listening socket's mutex, child's mutex, spinlock.
 */
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "stcp.h"

struct stcp_listener {
	spinlock_t lock;
	struct sock *sk;		/* NULL when it listens no more */
	struct list_head pending, ready;
	unsigned int pending_len, ready_len;
};

int stcp_listen(struct socket *sock, int backlog)
{
	struct stcp *st = stcp_ensure(sock);
	struct stcp_listener *listener;
	int rc;

	if (!st)
		return -ENOMEM;
	mutex_lock(&st->lock);
	listener = st->listener ?: kzalloc(sizeof(*listener), GFP_KERNEL);
	if (listener && !st->listener) {
		spin_lock_init(&listener->lock);
		INIT_LIST_HEAD(&listener->pending);
		INIT_LIST_HEAD(&listener->ready);
		st->listener = listener;
	}
	rc = !listener ? -ENOMEM : st->state > STCP_LISTENING ? -EINVAL : st->base->listen(sock, backlog);
	if (!rc) {
		spin_lock_bh(&listener->lock);
		listener->sk = sock->sk;
		spin_unlock_bh(&listener->lock);
		smp_store_release(&st->state, STCP_LISTENING);
		stcp_watch(st);
		stcp_look_later(st);
	}
	mutex_unlock(&st->lock);
	return rc;
}

/* Ends a child that nobody will accept. It is off the lists, its lock is held. */
static void stcp_discard(struct stcp *child)
{
	struct stcp *parent = child->parent;
	struct socket *sock = child->sock;

	tcp_abort(sock->sk, ECONNABORTED);
	child->sock = NULL;
	child->parent = NULL;
	sock->sk->sk_user_data = NULL;
	sock_release(sock);
	stcp_put(parent);
}

static struct stcp *stcp_first(struct stcp_listener *listener, bool ready)
{
	struct list_head *list = ready ? &listener->ready : &listener->pending;
	struct stcp *child;

	spin_lock_bh(&listener->lock);
	child = list_first_entry_or_null(list, struct stcp, sibling);
	if (child) {
		list_del_init(&child->sibling);
		if (ready)
			WRITE_ONCE(listener->ready_len, listener->ready_len - 1);
		else
			listener->pending_len--;
	}
	spin_unlock_bh(&listener->lock);
	return child;
}

/* Drops the oldest child of a list; false if there is none. */
static bool stcp_drop_first(struct stcp_listener *listener, bool ready)
{
	struct stcp *child = stcp_first(listener, ready);

	if (!child)
		return false;
	mutex_lock_nested(&child->lock, SINGLE_DEPTH_NESTING);
	stcp_finish(child, -ECONNABORTED);
	stcp_discard(child);
	mutex_unlock(&child->lock);
	stcp_put(child);
	return true;
}

static int stcp_accept_tcp(struct stcp *st, struct socket *newsock)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	struct proto_accept_arg arg = { .flags = O_NONBLOCK };

	return st->base->accept(st->sock, newsock, &arg);
#else
	return st->base->accept(st->sock, newsock, O_NONBLOCK, false);
#endif
}

/* One connection from TCP's queue, as a child that shakes hands. */
static int stcp_pull_one(struct stcp *st)
{
	struct stcp_listener *listener = st->listener;
	struct socket *sock;
	struct stcp *child;
	int rc = sock_create_lite(st->base->family, SOCK_STREAM, IPPROTO_TCP, &sock);

	if (rc)
		return rc;
	sock->ops = st->base;
	__module_get(sock->ops->owner);
	rc = stcp_accept_tcp(st, sock);
	if (rc)
		goto no_child;
	rc = -ENOMEM;
	child = stcp_new(sock, true);
	if (!child)
		goto no_child;
	__rcu_assign_sk_user_data_with_flags(sock->sk, child, SK_USER_DATA_NOCOPY);
	kref_get(&st->ref);
	child->parent = st;
	child->uid = st->uid;
	child->pid = st->pid;

	if (listener->pending_len >= READ_ONCE(stcp_pending_max) && stcp_drop_first(listener, false)) {
		stcp_count(STCP_DROPPED);
		pr_info_ratelimited("more than %u unfinished handshakes at one listener: the oldest is dropped\n",
				    stcp_pending_max);
	}
	mutex_lock_nested(&child->lock, SINGLE_DEPTH_NESTING);
	kref_get(&child->ref);
	spin_lock_bh(&listener->lock);
	list_add_tail(&child->sibling, &listener->pending);
	listener->pending_len++;
	spin_unlock_bh(&listener->lock);
	stcp_start_timer(child);
	stcp_watch(child);
	stcp_look(child);
	mutex_unlock(&child->lock);
	stcp_put(child);
	return 0;

no_child:
	sock_release(sock);
	return rc;
}

/* Called with lock held. Programs that don't accept fill `ready`, then TCP's own queue. */
void stcp_pull(struct stcp *st)
{
	struct sock *sk = st->sock->sk;

	while (READ_ONCE(st->listener->ready_len) <= READ_ONCE(sk->sk_max_ack_backlog) &&
	       !stcp_pull_one(st))
		cond_resched();
}

/* A child's handshake has ended. Its lock is held; the socket may be gone afterwards. */
void stcp_child_done(struct stcp *child)
{
	struct stcp_listener *listener = child->parent->listener;
	bool keyed = child->state == STCP_KEYED;
	bool listed;

	spin_lock_bh(&listener->lock);
	listed = !list_empty(&child->sibling);
	if (listed) {
		listener->pending_len--;
		list_del_init(&child->sibling);
	}
	if (listed && keyed) {
		list_add_tail(&child->sibling, &listener->ready);
		WRITE_ONCE(listener->ready_len, listener->ready_len + 1);
		if (listener->sk)
			listener->sk->sk_data_ready(listener->sk);
	}
	spin_unlock_bh(&listener->lock);
	if (listed && !keyed) {
		stcp_discard(child);
		stcp_put(child);	/* the list's; the caller has its own */
	}
}

/* A finished connection for the program, in `newsock`. */
int stcp_take_child(struct socket *sock, struct socket *newsock, int flags)
{
	struct stcp *st = stcp_of(sock), *child = NULL;
	struct sock *sk = sock->sk;
	long timeo = sock_rcvtimeo(sk, flags & O_NONBLOCK);
	struct socket *inner;
	int rc = 0;
	DEFINE_WAIT(wait);

	if (!st || stcp_state(st) != STCP_LISTENING)
		return -EINVAL;
	for (;;) {
		prepare_to_wait_exclusive(sk_sleep(sk), &wait, TASK_INTERRUPTIBLE);
		child = stcp_first(st->listener, true);
		if (child)
			break;
		if (READ_ONCE(sk->sk_state) != TCP_LISTEN)
			rc = -EINVAL;
		else if (!timeo)
			rc = -EAGAIN;
		else if (signal_pending(current))
			rc = sock_intr_errno(timeo);
		if (rc)
			break;
		timeo = schedule_timeout(timeo);
	}
	finish_wait(sk_sleep(sk), &wait);
	if (!child)
		return rc;

	mutex_lock(&child->lock);
	inner = child->sock;
	sk = inner->sk;
	lock_sock(sk);
	inner->sk = NULL;
	sock_graft(sk, newsock);
	newsock->state = SS_CONNECTED;
	release_sock(sk);
	child->sock = newsock;
	child->parent = NULL;
	child->told = true;
	mutex_unlock(&child->lock);
	sock_release(inner);
	stcp_look_later(st);		/* there is room again */
	stcp_put(st);
	return 0;
}

__poll_t stcp_poll_listener(struct stcp *st, struct file *file, poll_table *wait)
{
	struct socket *sock = st->sock;
	__poll_t mask = st->base->poll(file, sock, wait);

	if (READ_ONCE(sock->sk->sk_state) != TCP_LISTEN)
		return mask;
	return READ_ONCE(st->listener->ready_len) ? EPOLLIN | EPOLLRDNORM : 0;
}

/* Called with lock held. */
void stcp_stop_listening(struct stcp *st)
{
	struct stcp_listener *listener = st->listener;

	if (st->state != STCP_LISTENING)
		return;
	stcp_unwatch(st);
	smp_store_release(&st->state, STCP_FRESH);
	spin_lock_bh(&listener->lock);
	listener->sk = NULL;
	spin_unlock_bh(&listener->lock);
	while (stcp_drop_first(listener, false) || stcp_drop_first(listener, true))
		cond_resched();
}
