// SPDX-License-Identifier: GPL-2.0-only
/*
 * The way of a connection from TCP's to ours: noticed, given to the agent, keyed or failed.
 *
 * Nothing of TCP is hooked: a wait queue entry on the socket hears what TCP tells the program,
 * and a worker then looks. All steps but that are taken under the object's mutex.
 */
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
	skb_queue_purge(&st->opened);
	atomic_long_dec(&stcp_counters.sockets);
	kfree_sensitive(st);
}

void stcp_put(struct stcp *st)
{
	kref_put(&st->ref, stcp_free);
}

/* Has the worker look at once. Any context. */
void stcp_look_now(struct stcp *st)
{
	kref_get(&st->ref);
	if (mod_delayed_work(stcp_wq, &st->look, 0))
		stcp_put(st);		/* what was due has one */
}

/* At the deadline, unless it looks before. */
static void stcp_look_then(struct stcp *st)
{
	kref_get(&st->ref);
	if (!queue_delayed_work(stcp_wq, &st->look, max(0L, (long)(st->deadline - jiffies))))
		stcp_put(st);
}

void stcp_start_timer(struct stcp *st)
{
	atomic_long_inc(&stcp_counters.pending);
	st->deadline = jiffies + msecs_to_jiffies(READ_ONCE(stcp_handshake_ms)) ?: 1;
	stcp_look_then(st);
}

static void stcp_look_work(struct work_struct *work)
{
	struct stcp *st = container_of(to_delayed_work(work), struct stcp, look);

	mutex_lock(&st->lock);
	if (st->sock && st->deadline && time_after_eq(jiffies, st->deadline))
		stcp_finish(st, -ETIMEDOUT);
	else if (st->sock)
		stcp_look(st);
	if (st->deadline)
		stcp_look_then(st);
	mutex_unlock(&st->lock);
	stcp_put(st);
}

/* A peer that sends FIN at once puts us into CLOSE_WAIT before anyone looked: that is up as well. */
static bool stcp_is_up(const struct sock *sk)
{
	return !((1 << READ_ONCE(sk->sk_state)) & (TCPF_CLOSE | TCPF_LISTEN | TCPF_SYN_SENT |
						   TCPF_SYN_RECV | TCPF_NEW_SYN_RECV));
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
		stcp_look_now(st);
	__wake_up(&st->changed, TASK_NORMAL, 0, key);
	return 0;
}

/*
 * The object of `sock`. It watches from the moment that others can see it; a child does not yet.
 * EBUSY: somebody else has laid hands on the socket.
 */
struct stcp *stcp_new(struct socket *sock, struct stcp *parent)
{
	struct stcp *st = kzalloc(sizeof(*st), GFP_KERNEL_ACCOUNT);
	struct sock *sk = sock->sk;
	bool is_free;

	if (!st)
		return ERR_PTR(-ENOMEM);
	kref_init(&st->ref);
	mutex_init(&st->lock);
	mutex_init(&st->connecting);
	mutex_init(&st->reading);
	skb_queue_head_init(&st->opened);
	st->sock = sock;
	st->base = stcp_tcp_ops(sk);
	st->server = parent;
	st->parent = parent;
	init_waitqueue_head(&st->changed);
	init_waitqueue_func_entry(&st->watch, stcp_on_wake);
	INIT_DELAYED_WORK(&st->look, stcp_look_work);
	INIT_LIST_HEAD(&st->queued);
	INIT_LIST_HEAD(&st->sibling);
	spin_lock_init(&st->children_lock);
	INIT_LIST_HEAD(&st->children[0]);
	INIT_LIST_HEAD(&st->children[1]);
	atomic_long_inc(&stcp_counters.sockets);

	/* Another thread, or BPF that has put an accepted connection into a sockmap. */
	lock_sock(sk);
	write_lock_bh(&sk->sk_callback_lock);
	is_free = !sk->sk_user_data;
	if (is_free) {
		/* TCP would tell nobody of bytes that are fewer. */
		st->lowat = parent ? READ_ONCE(parent->lowat) : sk->sk_rcvlowat;
		WRITE_ONCE(sk->sk_rcvlowat, 1);
		if (!parent)
			add_wait_queue(&sock->wq.wait, &st->watch);
		__rcu_assign_sk_user_data_with_flags(sk, st, SK_USER_DATA_NOCOPY);
	}
	write_unlock_bh(&sk->sk_callback_lock);
	release_sock(sk);
	if (!is_free) {
		stcp_put(st);
		return ERR_PTR(-EBUSY);
	}
	if (parent)
		kref_get(&parent->ref);
	else
		stcp_forget_proto(sk);
	clear_bit(SOCK_SUPPORT_ZC, &sock->flags);	/* io_uring's zero copy: kTLS can't */
	return st;
}

/* Does what TCP's state asks for. Called with lock held and the socket there. */
void stcp_look(struct stcp *st)
{
	struct sock *sk = st->sock->sk;
	bool gone = READ_ONCE(sk->sk_state) == TCP_CLOSE;
	int err;

	if (st->state == STCP_LISTENING)
		stcp_pull(st);
	else if (gone && (st->state != STCP_FRESH || st->parent))
		stcp_finish(st, -ECONNRESET);
	else if (READ_ONCE(st->displaced))
		stcp_finish(st, -EPROTO);
	if (st->state != STCP_FRESH || !stcp_is_up(sk))
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
	remove_wait_queue(&st->sock->wq.wait, &st->watch);
	if (stcp_dequeue(st))
		stcp_put(st);
	if (st->deadline)
		atomic_long_dec(&stcp_counters.pending);
	st->deadline = 0;
	if (cancel_delayed_work(&st->look))
		stcp_put(st);
	if (err) {
		/* Where TCP's connection ended first, its reason is the one. */
		if (READ_ONCE(sk->sk_state) == TCP_CLOSE && READ_ONCE(sk->sk_err)) {
			if (sk->sk_err == EPIPE)	/* RST after FIN */
				WRITE_ONCE(sk->sk_err, ECONNRESET);
			err = -READ_ONCE(sk->sk_err);
		}
		st->err = err;
		atomic_long_inc(err == -ETIMEDOUT ? &stcp_counters.handshakes_timed_out :
				&stcp_counters.handshakes_failed);
		/* TCP first: poll() must never see a failed handshake on a living connection. */
		tcp_abort(sk, -err);
		smp_store_release(&st->state, STCP_FAILED);
	} else {
		atomic_long_inc(&stcp_counters.handshakes_ok);
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

/* The program goes: stops what goes on with others, if anything does. Called with lock held. */
bool stcp_give_up(struct stcp *st)
{
	stcp_stop_listening(st);
	if (st->state != STCP_QUEUED && st->state != STCP_TAKEN)
		return false;
	stcp_finish(st, -ECONNABORTED);
	return true;
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
		if (!timeo && READ_ONCE(sk->sk_state) != TCP_CLOSE)
			return -EAGAIN;
		if (!timeo) {
			/* Its end is seen by poll() already, so nobody is told to try again. */
			mutex_lock(&st->lock);
			stcp_look(st);
			mutex_unlock(&st->lock);
			continue;
		}
		left = wait_event_interruptible_timeout(st->changed,
			stcp_state(st) != was ||
			(was == STCP_FRESH && READ_ONCE(sk->sk_state) == TCP_CLOSE), timeo);
		if (left < 0)
			return sock_intr_errno(timeo);
		timeo = left;
	}
	return was == STCP_KEYED ? 0 : st->err;
}
