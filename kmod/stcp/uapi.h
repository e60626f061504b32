/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * What user space sees: the agent's device, and the one socket option.
 *
 * The agent reads requests from /dev/stcp. Each comes with a file of its own for the raw bytes of
 * one connection, its keys and its outcome. `crates/wire/src/agent.rs` holds the same layout.
 */
#ifndef STCP_UAPI_H
#define STCP_UAPI_H

#include <linux/ioctl.h>
#include <linux/tls.h>
#include <linux/types.h>

#define STCP_PROTOCOL 261		/* default of the module parameter */
#define STCP_VERSION 1

struct stcp_request {
	__u16 version, size;
	__u32 id;
	__s32 fd;
	__u8 side;			/* 0 client, 1 server */
	__u8 carrier;			/* 0: this module */
	__u16 reserved;
	__u32 uid, pid;			/* of connect() or listen() */
	__u64 netns;			/* inode number */
	__u8 local[28], peer[28];	/* struct sockaddr_in or sockaddr_in6 */
	__u8 reserved2[8];
};

struct stcp_done {
	__s32 status;			/* 0: both keys are in; or a negative errno */
	__u8 authentication;
	__u8 reserved[3];
	__u8 key_pin[32];
};

/* The argument is the whole tls12_crypto_info_* that the header begins. */
#define STCP_IOC_TX _IOW('S', 1, struct tls_crypto_info)
#define STCP_IOC_RX _IOW('S', 2, struct tls_crypto_info)
#define STCP_IOC_DONE _IOW('S', 3, struct stcp_done)

#define STCP_PEER 1			/* getsockopt(fd, protocol, STCP_PEER) */

struct stcp_peer {
	__u8 authentication;
	__u8 cipher;			/* TLS_CIPHER_* of linux/tls.h */
	__u8 reserved[2];
	__u8 key_pin[32];
};

#endif
