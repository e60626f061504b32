// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's TLS beneath a socket of ours.
 *
 * kTLS builds one table of operations per address family out of whichever socket comes first,
 * and writes its choice into that socket. It must see TCP's operations there, never ours: a
 * child's own struct socket has them; a program's socket is kept out of sight behind a lent one,
 * so that ours stay on top in every instant.
 */
#include <linux/uaccess.h>
#include <net/tls.h>

#include "stcp.h"

static void stcp_show(struct sock *sk, struct socket *sock)
{
	write_lock_bh(&sk->sk_callback_lock);
	sk_set_socket(sk, sock);
	write_unlock_bh(&sk->sk_callback_lock);
}

static int stcp_setsockopt_beneath(struct stcp *st, int level, int name, sockptr_t value,
				   unsigned int len)
{
	struct sock *sk = st->sock->sk;
	struct socket *seen = st->parent ? st->sock : st->lent;
	int rc;

	if (!st->parent)
		stcp_show(sk, seen);
	rc = READ_ONCE(sk->sk_prot)->setsockopt(sk, level, name, value, len);
	if (!st->parent)
		stcp_show(sk, st->sock);
	WRITE_ONCE(st->base, READ_ONCE(seen->ops));
	return rc;
}

/* Makes the socket one that kTLS knows, still without keys. EPROTO where it can't. */
int stcp_ktls_attach(struct stcp *st)
{
	int rc;

	if (inet_csk(st->sock->sk)->icsk_ulp_ops)
		return 0;
	if (!st->parent && !st->lent) {
		rc = sock_create_lite(st->base->family, SOCK_STREAM, IPPROTO_TCP, &st->lent);
		if (rc)
			return rc;
		/* Kept until the end: someone may still look at it without a lock. */
		st->lent->ops = st->base;
	}
	rc = stcp_setsockopt_beneath(st, SOL_TCP, TCP_ULP, KERNEL_SOCKPTR("tls"), 4);
	if (rc == -ENOTCONN)
		return -EPROTO;		/* the peer's FIN is here already */
	if (rc)
		pr_err_ratelimited("kTLS can't be attached (error %d): is the module `tls` loaded?\n", rc);
	return rc ? -EPROTO : 0;
}

/* Copies one direction's key from the agent into kTLS. Called with lock held. */
int stcp_ktls_install(struct stcp *st, int direction, const void __user *info)
{
	union {
		struct tls_crypto_info info;
		struct tls12_crypto_info_aes_gcm_128 aes128;
		struct tls12_crypto_info_aes_gcm_256 aes256;
		struct tls12_crypto_info_chacha20_poly1305 chacha;
	} key;
	size_t len;
	int rc;

	if (copy_from_user(&key.info, info, sizeof(key.info)))
		return -EFAULT;
	switch (key.info.cipher_type) {
	case TLS_CIPHER_AES_GCM_128:
		len = sizeof(key.aes128);
		break;
	case TLS_CIPHER_AES_GCM_256:
		len = sizeof(key.aes256);
		break;
	case TLS_CIPHER_CHACHA20_POLY1305:
		len = sizeof(key.chacha);
		break;
	default:
		return -EINVAL;
	}
	if (st->keys && key.info.cipher_type != st->peer.cipher)
		return -EINVAL;
	st->peer.cipher = key.info.cipher_type;
	rc = copy_from_user(&key, info, len) ? -EFAULT : 0;
	if (!rc && (key.info.version != TLS_1_3_VERSION || key.info.cipher_type != st->peer.cipher))
		rc = -EINVAL;
	if (!rc)
		rc = stcp_setsockopt_beneath(st, SOL_TLS, direction == STCP_TX ? TLS_TX : TLS_RX,
					     KERNEL_SOCKPTR(&key), len);
	memzero_explicit(&key, sizeof(key));
	if (!rc)
		st->keys |= direction;
	return rc;
}
