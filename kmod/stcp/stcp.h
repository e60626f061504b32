/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Secure TCP inside the kernel: a TCP socket whose operations are wrapped.
 *
 * The struct sock is TCP's from its first moment, so that every option, timer and tool works as
 * with TCP. Only struct proto_ops is ours: it lets nothing through before both keys are in.
 * No cryptography here: the agent shakes hands, kTLS makes the records.
 */
#ifndef STCP_H
#define STCP_H

#include <linux/kref.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/rbtree.h>
#include <linux/version.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/inet_common.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "uapi.h"

/*
 * A peer can turn the TLS of older kernels against them: after an empty record they take one record
 * for another (CVE-2025-39682), and a bogus header has them write out of bounds (CVE-2025-39946).
 * Series that never had these corrections get no others either.
 */
#define STCP_HAS(series, sublevel)							\
	(LINUX_VERSION_CODE >> 8 == (6 << 8 | (series)) && (LINUX_VERSION_CODE & 255) >= (sublevel))
#if !STCP_HAS(1, 154) && !STCP_HAS(6, 108) && !STCP_HAS(12, 49)
#error "the TLS of this kernel has known holes, or was not tried: stcp needs 6.1.154, 6.6.108, 6.12.49 or later ones of these series"
#endif

#undef pr_fmt
#define pr_fmt(fmt) "stcp: " fmt

/* A state never goes back, but for a listener that stops: it is FRESH again. */
enum stcp_state {
	STCP_FRESH,			/* no TCP connection yet, or nobody asked for the agent yet */
	STCP_LISTENING,
	STCP_QUEUED,			/* waits for the agent */
	STCP_TAKEN,			/* the agent shakes hands */
	STCP_KEYED,			/* records, both ways */
	STCP_FAILED,			/* err says why; TCP's connection is gone */
};

enum { STCP_TX = 1, STCP_RX = 2 };	/* bits of `keys` */

struct stcp;
struct stcp_group;

/* Members of which one of those who have the most goes for another (crowd.c); all zero: none yet. */
struct stcp_crowd {
	struct rb_root keys, ranks;
	u64 entered;
	unsigned int len;
	bool newest_goes;		/* or the oldest */
};

struct stcp_place {
	struct list_head list;
	struct stcp_group *group;
};

enum { STCP_LEVELS = 5 };		/* of groups */

/*
 * One socket. Its references: the socket (for a child not yet accepted, the listener's list), a
 * child's `parent`, the agent's queue or file, a due look.
 */
struct stcp {
	struct kref ref;
	struct mutex lock;		/* agent, look and close take turns */
	struct mutex connecting;	/* calls of connect() take turns */
	struct socket *sock;		/* NULL once closed */
	const struct proto_ops *base;	/* the operations beneath: TCP's, then kTLS's */
	struct socket *lent;		/* what kTLS sees instead of `sock` */
	enum stcp_state state;		/* stored with release, under lock */
	int err;
	bool server, told;
	u8 keys;
	u32 id, uid, pid;
	u32 maker;			/* of the user's namespace; in the first one the user */
	struct stcp_peer peer;

	wait_queue_head_t changed;	/* whoever waits for the handshake: program and agent */
	atomic_t wakes;
	wait_queue_entry_t watch;	/* until it ends, hears what TCP tells the program */
	struct delayed_work look;
	unsigned long deadline;		/* in jiffies; 0: none runs */
	struct list_head queued;
	struct stcp_place waiting;	/* while it is queued */
	bool displaced;			/* from the queue: it is to fail */

	/* Of a listener: children that shake hands [0], and those that are done [1]. */
	spinlock_t children_lock;
	struct list_head children[2];
	unsigned int children_len[2];
	struct stcp_crowd unfinished;	/* those of children[0] */
	struct stcp *parent;		/* of a child not yet accepted */
	struct list_head sibling;
	struct stcp_place place;	/* in the parent's `unfinished` */

	/* Records, once keyed. */
	struct mutex reading;		/* whoever opens records; never held to wait for the peer */
	struct sk_buff_head opened;	/* data that nobody has read yet */
	size_t opened_len;
	int lowat;			/* SO_RCVLOWAT; beneath it is 1, as it counts data */
	u8 without_data;		/* records in a row */
	u8 inside;			/* the type of record that a message goes on in, or 0 */
	atomic64_t sent_blocks;
	int end;			/* of what comes in: 1 at close_notify, or an errno */
	bool read_shut, close_sent;
	u8 head[4], head_len;		/* of an alert or a handshake message */
	u32 message_left;
};

/* main.c; the files of /sys/class/misc/stcp have the counters' names. */
#define STCP_COUNTERS(X)						\
	X(handshakes_ok) X(handshakes_failed) X(handshakes_timed_out)	\
	X(handshakes_without_agent) X(handshakes_dropped)		\
	X(key_limits_reached) X(pending) X(sockets)
#define STCP_COUNTER(name) atomic_long_t name;

extern struct stcp_counters { STCP_COUNTERS(STCP_COUNTER) } stcp_counters;
extern int stcp_protocol;
extern unsigned int stcp_handshake_ms, stcp_pending_max;
extern unsigned long stcp_gcm_blocks;
extern struct workqueue_struct *stcp_wq;
const struct proto_ops *stcp_tcp_ops(const struct sock *sk);
void stcp_forget_proto(struct sock *sk);

/* socket.c */
struct stcp *stcp_ensure(struct socket *sock);
void stcp_wrap_ops(struct proto_ops *ops);

static inline struct stcp *stcp_of_sk(const struct sock *sk)
{
	return (void *)((uintptr_t)READ_ONCE(sk->sk_user_data) & SK_USER_DATA_PTRMASK);
}

static inline struct stcp *stcp_of(const struct socket *sock)
{
	return stcp_of_sk(sock->sk);
}

/* handshake.c */
struct stcp *stcp_new(struct socket *sock, struct stcp *parent);
void stcp_put(struct stcp *st);
void stcp_look(struct stcp *st);
void stcp_look_now(struct stcp *st);
void stcp_start_timer(struct stcp *st);
void stcp_finish(struct stcp *st, int err);
bool stcp_give_up(struct stcp *st);
int stcp_await(struct stcp *st, long timeo);

static inline enum stcp_state stcp_state(const struct stcp *st)
{
	return smp_load_acquire(&st->state);
}

/* listener.c */
int stcp_listen(struct socket *sock, int backlog);
int stcp_take_child(struct socket *sock, struct socket *newsock, int flags);
void stcp_pull(struct stcp *st);
void stcp_stop_listening(struct stcp *st);
void stcp_child_done(struct stcp *child);

/* agent.c */
int stcp_agent_init(void);
void stcp_agent_exit(void);
int stcp_submit(struct stcp *st);
struct stcp *stcp_dequeue(struct stcp *st);

/* crowd.c */
void stcp_set_user(struct stcp *st);
struct stcp_group *stcp_spare_groups(void);
void stcp_free_groups(struct stcp_group *spare);
void stcp_enter(struct stcp_crowd *crowd, struct stcp_place *place, const struct stcp *st,
		struct stcp_group **spare);
void stcp_leave(struct stcp_crowd *crowd, struct stcp_place *place);
struct stcp_place *stcp_who_goes(const struct stcp_crowd *crowd);

/* ktls.c */
int stcp_ktls_attach(struct stcp *st);
int stcp_ktls_install(struct stcp *st, int direction, const void __user *info);

/* records.c */
int stcp_send(struct stcp *st, struct msghdr *m, size_t len);
int stcp_receive(struct stcp *st, struct msghdr *m, size_t len, int flags);
__poll_t stcp_poll_records(struct stcp *st, struct file *file);
int stcp_count(struct stcp *st);
void stcp_drop_unread(struct stcp *st);
void stcp_send_close(struct stcp *st);

#endif
