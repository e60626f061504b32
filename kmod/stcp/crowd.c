// SPDX-License-Identifier: GPL-2.0-only
/*
 * Whose handshake goes when there are too many: one of those who have the most.
 *
 * Members are in groups within groups: who made the user's namespace, user and side, and three
 * prefixes of the peer's address. The one that goes is of the largest group, within it of the
 * largest again, and so on: who floods displaces himself, however finely he spreads. The agent has
 * the same rule and prefixes (crates/identity/src/crowd.rs). A call costs the logarithm of the
 * number of members. Callers hold a spinlock of theirs; what allocates is apart.
 */
#include <linux/slab.h>
#include <linux/user_namespace.h>
#include <net/ipv6.h>

#include "stcp.h"

/* Has members, or groups: by key to be found, and by rank to be chosen from, which is the last. */
struct stcp_group {
	struct stcp_group *parent;
	struct rb_node keyed, ranked;	/* in the parent's trees */
	struct rb_root keys, ranks;
	struct list_head members;	/* oldest first */
	u64 key, turn;
	unsigned int len;
};

/* Whoever calls connect() or listen() is whose handshakes these are. */
void stcp_set_user(struct stcp *st)
{
	struct user_namespace *ns = current_user_ns();
	kuid_t maker = current_uid();

	st->uid = from_kuid(&init_user_ns, maker);
	st->pid = task_tgid_nr(current);
	/* In a namespace of his own a user has thousands of user IDs. */
	for (; ns != &init_user_ns; ns = ns->parent)
		maker = ns->owner;
	st->maker = from_kuid(&init_user_ns, maker);
}

static void stcp_path(const struct stcp *st, u64 path[STCP_LEVELS])
{
	const struct sock *sk = st->sock->sk;
	const struct in6_addr *a6 = &sk->sk_v6_daddr;
	u32 a4 = ntohl(sk->sk_daddr);
	u64 top = a4 | 0xffffULL << 32;	/* apart from all of IPv6 that is in use */

	path[0] = st->maker;
	path[1] = (u64)st->uid << 1 | st->server;
	path[2] = path[3] = path[4] = 0;
	if (sk->sk_family == AF_INET6 && !ipv6_addr_v4mapped(a6)) {
		top = be64_to_cpup((const __be64 *)a6);
		if (ipv6_addr_loopback(a6))
			return;
		path[2] = top & GENMASK_ULL(63, 32);
		path[3] = top & GENMASK_ULL(63, 16);
	} else {
		/* Whoever is on this machine has all of these addresses. */
		if (ipv4_is_loopback(htonl(a4)))
			return;
		path[2] = top & GENMASK_ULL(63, 16);
		path[3] = top & GENMASK_ULL(63, 8);
	}
	path[4] = top;
}

/* As many groups as one member may need, chained by `parent`, or NULL. */
struct stcp_group *stcp_spare_groups(void)
{
	struct stcp_group *spare = NULL, *g;
	int i;

	for (i = 0; i < STCP_LEVELS; i++) {
		g = kmalloc(sizeof(*g), GFP_KERNEL);
		if (!g) {
			stcp_free_groups(spare);
			return NULL;
		}
		g->parent = spare;
		spare = g;
	}
	return spare;
}

void stcp_free_groups(struct stcp_group *spare)
{
	struct stcp_group *g;

	while ((g = spare)) {
		spare = g->parent;
		kfree(g);
	}
}

static bool stcp_stays_longer(struct rb_node *a, const struct rb_node *b)
{
	const struct stcp_group *x = rb_entry(a, struct stcp_group, ranked);
	const struct stcp_group *y = rb_entry(b, struct stcp_group, ranked);

	return x->len != y->len ? x->len < y->len : x->turn < y->turn;
}

/* One more, or one less, in a group that has one then. */
static void stcp_count_group(struct stcp_group *g, struct rb_root *ranks, int more)
{
	if (g->len)
		rb_erase(&g->ranked, ranks);
	g->len += more;
	if (g->len)
		rb_add(&g->ranked, ranks, stcp_stays_longer);
}

/* The group of this key, perhaps one of the spare ones from now on. */
static struct stcp_group *stcp_group_of(struct stcp_group *parent, struct rb_root *keys, u64 key,
					u64 turn, struct stcp_group **spare)
{
	struct rb_node **at = &keys->rb_node, *above = NULL;
	struct stcp_group *g;

	while (*at) {
		above = *at;
		g = rb_entry(above, struct stcp_group, keyed);
		if (g->key == key)
			return g;
		at = key < g->key ? &above->rb_left : &above->rb_right;
	}
	g = *spare;
	*spare = g->parent;
	*g = (struct stcp_group){ .parent = parent, .key = key, .turn = turn };
	INIT_LIST_HEAD(&g->members);
	rb_link_node(&g->keyed, above, at);
	rb_insert_color(&g->keyed, keys);
	return g;
}

/* Adds a member: groups that it is the first of are taken from the spare ones. */
void stcp_enter(struct stcp_crowd *crowd, struct stcp_place *place, const struct stcp *st,
		struct stcp_group **spare)
{
	u64 path[STCP_LEVELS], turn = crowd->entered++;
	struct rb_root *keys = &crowd->keys, *ranks = &crowd->ranks;
	struct stcp_group *g = NULL;
	int i;

	stcp_path(st, path);
	for (i = 0; i < STCP_LEVELS; i++) {
		g = stcp_group_of(g, keys, path[i], crowd->newest_goes ? turn : ~turn, spare);
		stcp_count_group(g, ranks, 1);
		keys = &g->keys;
		ranks = &g->ranks;
	}
	list_add_tail(&place->list, &g->members);
	place->group = g;
	crowd->len++;
}

void stcp_leave(struct stcp_crowd *crowd, struct stcp_place *place)
{
	struct stcp_group *g = place->group, *parent;

	list_del(&place->list);
	for (; g; g = parent) {
		parent = g->parent;
		stcp_count_group(g, parent ? &parent->ranks : &crowd->ranks, -1);
		if (!g->len) {
			rb_erase(&g->keyed, parent ? &parent->keys : &crowd->keys);
			kfree(g);
		}
	}
	crowd->len--;
}

/* The member that is to go for another. There is one. */
struct stcp_place *stcp_who_goes(const struct stcp_crowd *crowd)
{
	const struct rb_root *ranks = &crowd->ranks;
	const struct stcp_group *g = NULL;

	while (!RB_EMPTY_ROOT(ranks)) {
		g = rb_entry(rb_last(ranks), struct stcp_group, ranked);
		ranks = &g->ranks;
	}
	return crowd->newest_goes ? list_last_entry(&g->members, struct stcp_place, list) :
				    list_first_entry(&g->members, struct stcp_place, list);
}
