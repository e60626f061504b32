// SPDX-License-Identifier: GPL-2.0-only
/*
 * The way of a connection from TCP's to ours: noticed, given to the agent, keyed or failed.
 *
 * Nothing of TCP is hooked: a wait queue entry on the socket hears what TCP tells the program,
 * and a worker then looks. All steps but that are taken under the object's mutex.
 */
#include <linux/module.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "stcp.h"

static void stcp_free(struct kref *ref)
{
	struct stcp *st = container_of(ref, struct stcp, ref);

	if (st->lent) {
		st->lent->ops = NULL;
		sock_release(st->lent);
	}
	kfree(st->listener);
	atomic_long_dec(&stcp_counters[STCP_SOCKETS]);
	kfree_sensitive(st);
}

void stcp_put(struct stcp *st)
{
	kref_put(&st->ref, stcp_free);
}

/* Called by TCP with the socket's wait queue locked, from any context. */
static int stcp_on_wake(wait_queue_entry_t *entry, unsigned int mode, int flags, void *key)
{
	struct stcp *st = container_of(entry, struct stcp, watch);
	enum stcp_state state = READ_ONCE(st->state);
	struct sock *sk = st->sock->sk;

	atomic_inc(&st->wakes);
	if (state == STCP_LISTENING || (state == STCP_FRESH && (st->parent || stcp_is_up(sk))) ||
	    (state > STCP_LISTENING && READ_ONCE(sk->sk_state) == TCP_CLOSE))
		stcp_look_later(st);
	__wake_up(&st->changed, TASK_NORMAL, 0, key);
	return 0;
}

static void stcp_look_work(struct work_struct *work)
{
	struct stcp *st = container_of(work, struct stcp, look);

	mutex_lock(&st->lock);
	if (st->sock)
		stcp_look(st);
	mutex_unlock(&st->lock);
	stcp_put(st);
}

static void stcp_timeout_work(struct work_struct *work)
{
	struct stcp *st = container_of(to_delayed_work(work), struct stcp, timeout);

	mutex_lock(&st->lock);
	if (st->sock)
		stcp_finish(st, -ETIMEDOUT);
	mutex_unlock(&st->lock);
	stcp_put(st);
}

/* An object for `sock`, with one reference. */
struct stcp *stcp_new(struct socket *sock, bool server)
{
	struct stcp *st = kzalloc(sizeof(*st), GFP_KERNEL);

	if (!st)
		return NULL;
	kref_init(&st->ref);
	mutex_init(&st->lock);
	mutex_init(&st->control);
	st->sock = sock;
	st->base = stcp_tcp_ops(sock->sk);
	st->server = server;
	st->uid = from_kuid(&init_user_ns, current_uid());
	st->pid = task_tgid_nr(current);
	init_waitqueue_head(&st->changed);
	init_waitqueue_func_entry(&st->watch, stcp_on_wake);
	INIT_WORK(&st->look, stcp_look_work);
	INIT_DELAYED_WORK(&st->timeout, stcp_timeout_work);
	INIT_LIST_HEAD(&st->queued);
	INIT_LIST_HEAD(&st->sibling);
	stcp_count(STCP_SOCKETS);
	return st;
}

void stcp_watch(struct stcp *st)
{
	if (!st->watching)
		add_wait_queue(&st->sock->wq.wait, &st->watch);
	st->watching = true;
}

void stcp_unwatch(struct stcp *st)
{
	if (st->watching)
		remove_wait_queue(&st->sock->wq.wait, &st->watch);
	st->watching = false;
}

/* Any context. */
void stcp_look_later(struct stcp *st)
{
	kref_get(&st->ref);
	if (!queue_work(stcp_wq, &st->look))
		stcp_put(st);
}

void stcp_start_timer(struct stcp *st)
{
	stcp_count(STCP_PENDING);
	st->pending = true;
	kref_get(&st->ref);
	queue_delayed_work(stcp_wq, &st->timeout, msecs_to_jiffies(READ_ONCE(stcp_handshake_ms)));
}

/* Does what TCP's state asks for. Called with lock held and the socket there. */
void stcp_look(struct stcp *st)
{
	struct sock *sk = st->sock->sk;
	bool gone = READ_ONCE(sk->sk_state) == TCP_CLOSE;
	int err;

	switch (st->state) {
	case STCP_LISTENING:
		stcp_pull(st);
		return;
	case STCP_FRESH:
		if (gone && st->parent)
			stcp_finish(st, -ECONNRESET);
		if (gone || !stcp_is_up(sk))
			return;
		/* While TCP is ESTABLISHED: kTLS takes no socket that has seen the peer's FIN. */
		err = stcp_ktls_attach(st);
		if (!err && st->server && skb_queue_empty_lockless(&sk->sk_receive_queue)) {
			/* A client that says nothing costs the agent nothing. */
			if (!(READ_ONCE(sk->sk_shutdown) & RCV_SHUTDOWN))
				return;
			err = -ECONNRESET;
		}
		if (!st->server && !err)
			stcp_start_timer(st);
		err = err ?: stcp_submit(st);
		if (err)
			stcp_finish(st, err);
		return;
	case STCP_QUEUED:
	case STCP_TAKEN:
		if (gone)
			stcp_finish(st, -ECONNRESET);
		return;
	default:
		return;
	}
}

/*
 * Ends the handshake, well (0) or with an errno: from here on the socket carries records, or
 * nothing. Called with lock held and the socket there.
 */
void stcp_finish(struct stcp *st, int err)
{
	struct sock *sk = st->sock->sk;

	if (st->state >= STCP_KEYED || st->state == STCP_LISTENING)
		return;
	stcp_unwatch(st);
	stcp_unsubmit(st);
	if (st->pending)
		atomic_long_dec(&stcp_counters[STCP_PENDING]);
	st->pending = false;
	if (cancel_delayed_work(&st->timeout))
		stcp_put(st);
	if (err) {
		/* Where TCP's connection ended first, its reason is the one. */
		if (READ_ONCE(sk->sk_state) == TCP_CLOSE && READ_ONCE(sk->sk_err)) {
			if (sk->sk_err == EPIPE)	/* RST after FIN */
				WRITE_ONCE(sk->sk_err, ECONNRESET);
			err = -READ_ONCE(sk->sk_err);
		}
		st->err = err;
		stcp_count(err == -ETIMEDOUT ? STCP_TIMED_OUT : STCP_FAIL);
		/* TCP first: poll() must never see a failed handshake on a living connection. */
		tcp_abort(sk, -err);
		smp_store_release(&st->state, STCP_FAILED);
	} else {
		stcp_count(STCP_OK);
		smp_store_release(&st->state, STCP_KEYED);
	}
	atomic_inc(&st->wakes);
	wake_up_all(&st->changed);
	if (st->parent) {
		stcp_child_done(st);
	} else {
		sk->sk_state_change(sk);
		sk_wake_async(sk, SOCK_WAKE_IO, POLL_OUT);
	}
}

/* The records are broken: nothing passes any more. Called by the program's own calls. */
void stcp_break(struct stcp *st, int err)
{
	mutex_lock(&st->lock);
	if (st->state == STCP_KEYED) {
		st->err = err;
		tcp_abort(st->sock->sk, -err);
		smp_store_release(&st->state, STCP_FAILED);
	}
	mutex_unlock(&st->lock);
}

/* 0 once keyed; waits for it as long as it may. The errno is TCP's or the handshake's. */
int stcp_await(struct stcp *st, long timeo)
{
	struct sock *sk = st->sock->sk;
	enum stcp_state was;
	long left;

	while ((was = stcp_state(st)) < STCP_KEYED) {
		if (was == STCP_LISTENING)
			return -ENOTCONN;
		if (was == STCP_FRESH && READ_ONCE(sk->sk_state) == TCP_CLOSE)
			return sock_error(sk) ?: -ENOTCONN;
		if (!timeo)
			return -EAGAIN;
		left = wait_event_interruptible_timeout(st->changed,
			stcp_state(st) != was ||
			(was == STCP_FRESH && READ_ONCE(sk->sk_state) == TCP_CLOSE), timeo);
		if (left < 0)
			return sock_intr_errno(timeo);
		timeo = left;
	}
	return was == STCP_KEYED ? 0 : st->err;
}
