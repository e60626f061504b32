// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module: parameters, and socket(AF_INET|AF_INET6, SOCK_STREAM, protocol).
 *
 * A struct proto of ours lives only as long as socket() runs: its init turns the new sock into
 * TCP's, as the number would else stand in the IP header and kTLS must always see TCP's proto.
 */
#include <net/protocol.h>
#include <net/transp_v6.h>

#include "stcp.h"

int stcp_protocol = STCP_PROTOCOL;
module_param_named(protocol, stcp_protocol, int, 0444);
MODULE_PARM_DESC(protocol, "third argument of socket(), 257 to 261");

unsigned int stcp_handshake_ms = 10000;
module_param_named(handshake_ms, stcp_handshake_ms, uint, 0644);
MODULE_PARM_DESC(handshake_ms, "how long a handshake may take");

unsigned int stcp_pending_max = 1024;
module_param_named(pending_max, stcp_pending_max, uint, 0644);
MODULE_PARM_DESC(pending_max, "unfinished handshakes at one listener");

/* 2^34.5 blocks: 2^24.5 full records, RFC 8446 §5.5. */
unsigned long stcp_gcm_blocks = 24296004000UL;
module_param_named(gcm_blocks, stcp_gcm_blocks, ulong, 0644);
MODULE_PARM_DESC(gcm_blocks, "blocks that one AES-GCM key may protect");

struct stcp_counters stcp_counters;
struct workqueue_struct *stcp_wq;

static struct proto proto4, proto6;
static struct proto_ops ops4, ops6;
static const struct proto_ops *tcp_ops6;	/* NULL: no IPv6 here */

/* TCP's operations for this socket's family. */
const struct proto_ops *stcp_tcp_ops(const struct sock *sk)
{
	return sk->sk_family == AF_INET6 ? tcp_ops6 : &inet_stream_ops;
}

static struct proto *tcp_proto(const struct sock *sk)
{
	return sk->sk_family == AF_INET6 ? &tcpv6_prot : &tcp_prot;
}

/*
 * Once, before it connects or listens: nothing of the sock is ours from here on, and what remains
 * of it after close() (TIME_WAIT) doesn't hold the module. The open file does.
 */
void stcp_forget_proto(struct sock *sk)
{
	sk->sk_prot_creator = tcp_proto(sk);
	module_put(THIS_MODULE);
}

static int become_tcp(struct sock *sk)
{
	sk->sk_protocol = IPPROTO_TCP;
	WRITE_ONCE(sk->sk_prot, tcp_proto(sk));
	return sk->sk_prot->init(sk);
}

static struct inet_protosw protosw4 = {
	.type = SOCK_STREAM, .prot = &proto4, .ops = &ops4, .flags = INET_PROTOSW_ICSK,
};
static struct inet_protosw protosw6 = {
	.type = SOCK_STREAM, .prot = &proto6, .ops = &ops6, .flags = INET_PROTOSW_ICSK,
};

/* It shares TCP's slabs and is never registered: proto_register() would make new ones for TCP. */
static void make_ours(struct inet_protosw *sw, const struct proto *tcp,
		      const struct proto_ops *tcp_ops)
{
	struct proto_ops *ops = (struct proto_ops *)sw->ops;

	*sw->prot = *tcp;
	strscpy(sw->prot->name, "STCP", sizeof(sw->prot->name));
	sw->prot->owner = THIS_MODULE;
	sw->prot->init = become_tcp;
	INIT_LIST_HEAD(&sw->prot->node);
	*ops = *tcp_ops;
	stcp_wrap_ops(ops);
	sw->protocol = stcp_protocol;
}

static int __init stcp_init(void)
{
	struct socket *shown;
	int rc;

	if (stcp_protocol < 257 || stcp_protocol > 261) {
		pr_err("protocol=%d: it must be 257 to 261\n", stcp_protocol);
		return -EINVAL;
	}
	request_module("tls");
	stcp_wq = alloc_workqueue("stcp", WQ_UNBOUND, 0);
	if (!stcp_wq)
		return -ENOMEM;
	rc = stcp_agent_init();
	if (rc) {
		destroy_workqueue(stcp_wq);
		return rc;
	}
	make_ours(&protosw4, &tcp_prot, &inet_stream_ops);
	inet_register_protosw(&protosw4);
	/* TCP's operations for IPv6 are not exported: a socket of the kernel's shows them. */
	if (!sock_create_kern(&init_net, AF_INET6, SOCK_STREAM, IPPROTO_TCP, &shown)) {
		tcp_ops6 = shown->ops;
		sock_release(shown);
		make_ours(&protosw6, &tcpv6_prot, tcp_ops6);
		if (inet6_register_protosw(&protosw6))
			tcp_ops6 = NULL;
	}
	pr_info("protocol %d%s\n", stcp_protocol, tcp_ops6 ? "" : ", without IPv6");
	return 0;
}

static void __exit stcp_exit(void)
{
	if (tcp_ops6)
		inet6_unregister_protosw(&protosw6);
	inet_unregister_protosw(&protosw4);
	stcp_agent_exit();
	destroy_workqueue(stcp_wq);
	synchronize_rcu();	/* a last wake-up may still run */
}

module_init(stcp_init);
module_exit(stcp_exit);
MODULE_LICENSE("GPL");
MODULE_SOFTDEP("pre: tls");
MODULE_DESCRIPTION("Secure TCP: TCP sockets whose stream is TLS 1.3");
MODULE_VERSION("0.1.0");
