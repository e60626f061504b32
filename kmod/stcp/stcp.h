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
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/version.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/inet_common.h>
#include <net/sock.h>
#include <net/tcp.h>

#include "uapi.h"

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

struct stcp_listener;

/*
 * One socket. Its references: the socket (for a child not yet accepted, the listener's list), the
 * agent's queue or file, a running look, a running timer.
 */
struct stcp {
	struct kref ref;
	struct mutex lock;		/* agent, timer, look and close take turns */
	struct socket *sock;		/* NULL once closed */
	const struct proto_ops *base;	/* the operations beneath: TCP's, then kTLS's */
	struct socket *lent;		/* what kTLS sees instead of `sock` */
	enum stcp_state state;		/* stored with release, under lock */
	int err;
	bool server, attached, watching, pending, told;
	u8 keys;
	u32 id, uid, pid;
	struct stcp_peer peer;

	wait_queue_head_t changed;	/* whoever waits for the handshake: program and agent */
	atomic_t wakes;
	wait_queue_entry_t watch;	/* hears what TCP tells the program */
	struct work_struct look;
	struct delayed_work timeout;
	struct list_head queued;

	struct stcp_listener *listener;	/* of a listening socket */
	struct stcp *parent;		/* of a child not yet accepted */
	struct list_head sibling;

	/* Records, once keyed. */
	struct mutex control;		/* one reader of control records at a time */
	atomic64_t sent_blocks;
	int read_err;
	bool eof, read_shut, close_sent;
	u8 alert[2], message[4], alert_len, message_len;
	u32 message_left;
};

/* main.c */
enum stcp_counter {
	STCP_OK, STCP_FAIL, STCP_TIMED_OUT, STCP_NO_AGENT, STCP_DROPPED, STCP_PENDING,
	STCP_SOCKETS, STCP_LIMIT_REACHED, STCP_COUNTERS,
};
extern atomic_long_t stcp_counters[STCP_COUNTERS];
extern int stcp_protocol;
extern unsigned int stcp_handshake_ms, stcp_pending_max;
extern unsigned long stcp_gcm_blocks;
extern struct workqueue_struct *stcp_wq;
const struct proto_ops *stcp_tcp_ops(const struct sock *sk);
void stcp_forget_proto(struct sock *sk);

static inline void stcp_count(enum stcp_counter which)
{
	atomic_long_inc(&stcp_counters[which]);
}

/* socket.c */
struct stcp *stcp_ensure(struct socket *sock);
void stcp_wrap_ops(struct proto_ops *ops);

static inline struct stcp *stcp_of(const struct socket *sock)
{
	return (void *)((uintptr_t)READ_ONCE(sock->sk->sk_user_data) & SK_USER_DATA_PTRMASK);
}

/* handshake.c */
struct stcp *stcp_new(struct socket *sock, bool server);
void stcp_put(struct stcp *st);
void stcp_watch(struct stcp *st);
void stcp_unwatch(struct stcp *st);
void stcp_look(struct stcp *st);
void stcp_look_later(struct stcp *st);
void stcp_start_timer(struct stcp *st);
void stcp_finish(struct stcp *st, int err);
void stcp_break(struct stcp *st, int err);
int stcp_await(struct stcp *st, long timeo);

static inline enum stcp_state stcp_state(const struct stcp *st)
{
	return smp_load_acquire(&st->state);
}

/* A peer that sends FIN at once puts us into CLOSE_WAIT before anyone looked: that is up as well. */
static inline bool stcp_is_up(const struct sock *sk)
{
	return !((1 << READ_ONCE(sk->sk_state)) & (TCPF_CLOSE | TCPF_LISTEN | TCPF_SYN_SENT |
						   TCPF_SYN_RECV | TCPF_NEW_SYN_RECV));
}

/* listener.c */
int stcp_listen(struct socket *sock, int backlog);
int stcp_take_child(struct socket *sock, struct socket *newsock, int flags);
__poll_t stcp_poll_listener(struct stcp *st, struct file *file, poll_table *wait);
void stcp_pull(struct stcp *st);
void stcp_stop_listening(struct stcp *st);
void stcp_child_done(struct stcp *st);

/* agent.c */
int stcp_agent_init(void);
void stcp_agent_exit(void);
int stcp_submit(struct stcp *st);
void stcp_unsubmit(struct stcp *st);

/* ktls.c */
int stcp_ktls_attach(struct stcp *st);
int stcp_ktls_install(struct stcp *st, int direction, const void __user *info);

/* records.c */
int stcp_send(struct stcp *st, struct msghdr *m, size_t len);
int stcp_receive(struct stcp *st, struct msghdr *m, size_t len, int flags);
int stcp_peek(struct stcp *st, size_t len);
void stcp_send_close(struct stcp *st);

#endif
