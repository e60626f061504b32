// SPDX-License-Identifier: GPL-2.0-only
/*
 * A listening socket: children leave TCP's queue as they come, shake hands side by side, and
 * only those that are done are there for accept().
 *
 * A child lives in a struct socket of ours until a program takes it. Lists and counts are under
 * the listener's spinlock; being on a list is the list's reference to the child. Lock order:
 * listening socket's mutex, child's mutex, spinlock.
 */
#include <linux/sched/signal.h>

#include "stcp.h"

/* Connections that leave TCP's queue before others get their turn with the listener. */
#define STCP_PULL_TURN 64

int stcp_listen(struct socket *sock, int backlog)
{
	struct stcp *st = stcp_ensure(sock);
	int rc;

	if (IS_ERR(st))
		return PTR_ERR(st);
	mutex_lock(&st->lock);
	rc = st->state > STCP_LISTENING ? -EINVAL : st->base->listen(sock, backlog);
	if (!rc) {
		stcp_set_user(st);
		smp_store_release(&st->state, STCP_LISTENING);
		stcp_look_now(st);
	}
	mutex_unlock(&st->lock);
	return rc;
}

/* Called with children_lock held. */
static void stcp_list(struct stcp *child, bool ready)
{
	list_add_tail(&child->sibling, &child->parent->children[ready]);
	WRITE_ONCE(child->parent->children_len[ready], child->parent->children_len[ready] + 1);
}

static void stcp_unlist(struct stcp *child, bool ready)
{
	if (!ready)
		stcp_leave(&child->parent->unfinished, &child->place);
	list_del_init(&child->sibling);
	WRITE_ONCE(child->parent->children_len[ready], child->parent->children_len[ready] - 1);
}

/* Takes the oldest child off a list: the caller gets the list's reference. */
static struct stcp *stcp_first(struct stcp *st, bool ready)
{
	struct stcp *child;

	spin_lock(&st->children_lock);
	child = list_first_entry_or_null(&st->children[ready], struct stcp, sibling);
	if (child)
		stcp_unlist(child, ready);
	spin_unlock(&st->children_lock);
	return child;
}

/* Puts a child among those that shake hands. The caller gets one that goes for it, or NULL. */
static struct stcp *stcp_add_child(struct stcp *child, struct stcp_group **spare)
{
	struct stcp *st = child->parent, *goes = NULL;

	spin_lock(&st->children_lock);
	kref_get(&child->ref);
	stcp_enter(&st->unfinished, &child->place, child, spare);
	stcp_list(child, false);
	if (st->children_len[0] > max(READ_ONCE(stcp_pending_max), 1U)) {
		goes = container_of(stcp_who_goes(&st->unfinished), struct stcp, place);
		stcp_unlist(goes, false);
	}
	spin_unlock(&st->children_lock);
	return goes;
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

/* Drops a child that was taken off its list; false if there is none. */
static bool stcp_drop_child(struct stcp *child)
{
	if (!child)
		return false;
	mutex_lock_nested(&child->lock, SINGLE_DEPTH_NESTING);
	stcp_finish(child, -ECONNABORTED);
	stcp_discard(child);
	mutex_unlock(&child->lock);
	stcp_put(child);
	return true;
}

/* One connection from TCP's queue, as a child that shakes hands. */
static int stcp_pull_one(struct stcp *st)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	struct proto_accept_arg arg = { .flags = O_NONBLOCK };
#endif
	struct stcp_group *spare;
	struct socket *sock;
	struct stcp *child;
	int rc = sock_create_lite(st->base->family, SOCK_STREAM, IPPROTO_TCP, &sock);

	if (rc)
		return rc;
	sock->ops = st->base;
	__module_get(sock->ops->owner);
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
	rc = st->base->accept(st->sock, sock, &arg);
#else
	rc = st->base->accept(st->sock, sock, O_NONBLOCK, false);
#endif
	spare = rc ? NULL : stcp_spare_groups();
	child = rc ? ERR_PTR(rc) : spare ? stcp_new(sock, st) : ERR_PTR(-ENOMEM);
	if (IS_ERR(child)) {
		stcp_free_groups(spare);
		sock_release(sock);
		return PTR_ERR(child);
	}
	/* Its packets are the listening program's, not this worker's. */
	sock->sk->sk_uid = st->sock->sk->sk_uid;
	child->uid = st->uid;
	child->maker = st->maker;
	child->pid = st->pid;

	/* Nobody else can find it yet, on the list or not: only who has the listener's lock looks there. */
	if (stcp_drop_child(stcp_add_child(child, &spare))) {
		atomic_long_inc(&stcp_counters.handshakes_dropped);
		pr_info_ratelimited("more than %u unfinished handshakes at one listener: the oldest of those with the most is dropped\n",
				    stcp_pending_max);
	}
	stcp_free_groups(spare);
	mutex_lock_nested(&child->lock, SINGLE_DEPTH_NESTING);
	stcp_start_timer(child);
	add_wait_queue(&sock->wq.wait, &child->watch);
	stcp_look(child);
	mutex_unlock(&child->lock);
	stcp_put(child);
	return 0;
}

/* Called with lock held. Programs that don't accept fill the list, then TCP's own queue. */
void stcp_pull(struct stcp *st)
{
	int turn;

	for (turn = 0; READ_ONCE(st->children_len[1]) <= READ_ONCE(st->sock->sk->sk_max_ack_backlog);
	     turn++) {
		if (turn == STCP_PULL_TURN)
			return stcp_look_now(st);
		if (stcp_pull_one(st))
			return;
		cond_resched();
	}
}

/* A child's handshake has ended. Its lock is held; the socket may be gone afterwards. */
void stcp_child_done(struct stcp *child)
{
	struct stcp *st = child->parent;
	bool keyed = child->state == STCP_KEYED;
	bool listed;

	spin_lock(&st->children_lock);
	listed = !list_empty(&child->sibling);
	if (listed)
		stcp_unlist(child, false);
	if (listed && keyed) {
		stcp_list(child, true);
		/* Whoever stops the listener has yet to come for this child: the socket is there. */
		st->sock->sk->sk_data_ready(st->sock->sk);
	}
	spin_unlock(&st->children_lock);
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
	long left, timeo = sock_rcvtimeo(sk, flags & O_NONBLOCK);
	struct socket *inner;

	if (!st || stcp_state(st) != STCP_LISTENING)
		return -EINVAL;
	/* Exclusive, as TCP's: one child wakes one of those who wait. */
	left = ___wait_event(*sk_sleep(sk),
			     ___wait_cond_timeout((child = stcp_first(st, true)) ||
						  READ_ONCE(sk->sk_state) != TCP_LISTEN),
			     TASK_INTERRUPTIBLE, 1, timeo, __ret = schedule_timeout(__ret));
	if (!child)
		return left < 0 ? sock_intr_errno(timeo) : left ? -EINVAL : -EAGAIN;

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
	stcp_look_now(st);		/* there is room again */
	stcp_put(st);
	return 0;
}

/* Called with lock held. */
void stcp_stop_listening(struct stcp *st)
{
	if (st->state != STCP_LISTENING)
		return;
	smp_store_release(&st->state, STCP_FRESH);
	while (stcp_drop_child(stcp_first(st, false)) || stcp_drop_child(stcp_first(st, true)))
		cond_resched();
}
