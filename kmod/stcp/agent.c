// SPDX-License-Identifier: GPL-2.0-only
/*
 * The agent's side: the device that hands out requests, and a file for each handshake.
 *
 * The file is the agent's own, never the program's: it moves the raw bytes of the connection
 * until the first key is in, has its own O_NONBLOCK, and closing it without an outcome fails the
 * handshake. So a killed agent leaves nothing open.
 */
#include <linux/anon_inodes.h>
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/poll.h>
#include <linux/uaccess.h>
#include <linux/uio.h>

#include "stcp.h"

/* Requests that no agent has read yet. For one beyond, the newest of those with the most fails. */
#define STCP_QUEUE_MAX 4096

static DEFINE_SPINLOCK(queue_lock);
static LIST_HEAD(queue);
static struct stcp_crowd waiting = { .newest_goes = true };
static bool is_open;
static u32 last_id;
static DECLARE_WAIT_QUEUE_HEAD(queue_wait);

/* Called with queue_lock held. The caller gets the queue's reference. */
static void stcp_unqueue(struct stcp *st)
{
	list_del_init(&st->queued);
	stcp_leave(&waiting, &st->waiting);
}

/* Queues it, and takes out the one that goes for it, if one does. Called with queue_lock held. */
static struct stcp *stcp_queue(struct stcp *st, struct stcp_group **spare)
{
	struct stcp *goes;

	kref_get(&st->ref);
	list_add_tail(&st->queued, &queue);
	stcp_enter(&waiting, &st->waiting, st, spare);
	st->id = ++last_id;
	smp_store_release(&st->state, STCP_QUEUED);
	if (waiting.len <= STCP_QUEUE_MAX)
		return NULL;
	goes = container_of(stcp_who_goes(&waiting), struct stcp, waiting);
	stcp_unqueue(goes);
	WRITE_ONCE(goes->displaced, true);
	return goes;
}

/* Asks the agent for a handshake. Called with lock held. */
int stcp_submit(struct stcp *st)
{
	struct stcp_group *spare = stcp_spare_groups();
	struct stcp *goes = NULL;
	bool open;

	if (!spare)
		return -ENOMEM;
	spin_lock(&queue_lock);
	open = is_open;
	if (open)
		goes = stcp_queue(st, &spare);
	spin_unlock(&queue_lock);
	stcp_free_groups(spare);
	if (open)
		wake_up_interruptible(&queue_wait);
	if (open && !goes)
		return 0;
	atomic_long_inc(&stcp_counters.handshakes_without_agent);
	if (!goes) {
		pr_warn_ratelimited("connections fail: no agent has /dev/stcp open (is `towline stcpd` running?)\n");
		return -EPROTO;
	}
	pr_warn_ratelimited("connections fail: the agent is overloaded, mostly by user %u\n", goes->uid);
	/* Another one by a worker: two that displace each other must not wait for each other's locks. */
	if (goes != st)
		stcp_look_now(goes);
	stcp_put(goes);
	return goes == st ? -EPROTO : 0;
}

/* Takes a request off the queue, NULL: the oldest. The caller gets the queue's reference. */
struct stcp *stcp_dequeue(struct stcp *st)
{
	spin_lock(&queue_lock);
	if (!st)
		st = list_first_entry_or_null(&queue, struct stcp, queued);
	else if (list_empty(&st->queued))
		st = NULL;
	if (st)
		stcp_unqueue(st);
	spin_unlock(&queue_lock);
	return st;
}

/* The agent has dropped it. Takes the reference. */
static void stcp_drop(struct stcp *st)
{
	mutex_lock(&st->lock);
	if (st->sock)
		stcp_finish(st, -EPROTO);
	mutex_unlock(&st->lock);
	stcp_put(st);
}

/* ---- the file of one handshake ---- */

/* Raw bytes may move only before the first key. */
static bool stcp_is_raw(struct stcp *st)
{
	return st->sock && st->state == STCP_TAKEN && !st->keys;
}

static ssize_t raw_move(struct kiocb *iocb, struct iov_iter *iter)
{
	struct file *file = iocb->ki_filp;
	struct stcp *st = file->private_data;
	struct msghdr m = { .msg_iter = *iter, .msg_flags = MSG_DONTWAIT | MSG_NOSIGNAL };
	size_t len = iov_iter_count(iter);
	ssize_t n;
	int seen;

	for (;;) {
		seen = atomic_read(&st->wakes);
		n = -ESHUTDOWN;
		mutex_lock(&st->lock);
		if (stcp_is_raw(st) && iov_iter_rw(iter) == WRITE)
			n = st->base->sendmsg(st->sock, &m, len);
		else if (stcp_is_raw(st))
			n = st->base->recvmsg(st->sock, &m, len, MSG_DONTWAIT);
		mutex_unlock(&st->lock);
		if (n != -EAGAIN || file->f_flags & O_NONBLOCK || iocb->ki_flags & IOCB_NOWAIT)
			return n;
		if (wait_event_interruptible(st->changed, atomic_read(&st->wakes) != seen))
			return -ERESTARTSYS;
	}
}

static __poll_t raw_poll(struct file *file, poll_table *wait)
{
	struct stcp *st = file->private_data;
	__poll_t mask = EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLERR | EPOLLHUP;

	poll_wait(file, &st->changed, wait);
	mutex_lock(&st->lock);
	if (stcp_is_raw(st))
		mask = st->base->poll(file, st->sock, NULL);
	mutex_unlock(&st->lock);
	return mask;
}

/* The agent says how it went. Called with lock held. */
static int raw_done(struct stcp *st, const struct stcp_done *done)
{
	if (!IS_ERR_VALUE((long)done->status) && (done->status || st->keys != (STCP_TX | STCP_RX)))
		return -EINVAL;
	st->peer.authentication = done->authentication;
	memcpy(st->peer.key_pin, done->key_pin, sizeof(st->peer.key_pin));
	stcp_finish(st, done->status);
	return 0;
}

static long raw_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct stcp *st = file->private_data;
	struct stcp_done done;
	long rc = -ESHUTDOWN;

	if (cmd == STCP_IOC_DONE && copy_from_user(&done, (void __user *)arg, sizeof(done)))
		return -EFAULT;
	mutex_lock(&st->lock);
	if (st->sock && st->state == STCP_TAKEN) {
		if (cmd == STCP_IOC_TX || cmd == STCP_IOC_RX)
			rc = stcp_ktls_install(st, cmd == STCP_IOC_TX ? STCP_TX : STCP_RX,
					       (void __user *)arg);
		else
			rc = cmd == STCP_IOC_DONE ? raw_done(st, &done) : -ENOTTY;
	}
	mutex_unlock(&st->lock);
	return rc;
}

static int raw_release(struct inode *inode, struct file *file)
{
	stcp_drop(file->private_data);
	return 0;
}

static const struct file_operations raw_fops = {
	.owner = THIS_MODULE,
	.read_iter = raw_move,
	.write_iter = raw_move,
	.poll = raw_poll,
	.unlocked_ioctl = raw_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
	.release = raw_release,
};

/* ---- the device ---- */

/* A file for the request, or NULL if it is over by now. Takes the reference. */
static struct file *stcp_take(struct stcp *st, struct stcp_request *request)
{
	struct file *file = NULL;

	mutex_lock(&st->lock);
	if (st->sock && st->state == STCP_QUEUED) {
		file = anon_inode_getfile("[stcp]", &raw_fops, st, O_RDWR | O_CLOEXEC);
		if (IS_ERR(file)) {
			stcp_finish(st, PTR_ERR(file));
		} else {
			stream_open(NULL, file);
			request->id = st->id;
			request->side = st->server;
			request->uid = st->uid;
			request->pid = st->pid;
			request->netns = sock_net(st->sock->sk)->ns.inum;
			/* Each has room for IPv6's. */
			st->base->getname(st->sock, (struct sockaddr *)request->local, 0);
			st->base->getname(st->sock, (struct sockaddr *)request->peer, 1);
			smp_store_release(&st->state, STCP_TAKEN);
		}
	}
	mutex_unlock(&st->lock);
	if (IS_ERR_OR_NULL(file))
		stcp_put(st);
	return file;
}

static ssize_t queue_read(struct file *dev, char __user *to, size_t len, loff_t *pos)
{
	struct stcp_request request = { .version = STCP_VERSION, .size = sizeof(request) };
	struct file *file = NULL;
	struct stcp *st;
	int rc;

	if (len < sizeof(request))
		return -EINVAL;
	request.fd = get_unused_fd_flags(O_CLOEXEC);
	if (request.fd < 0)
		return request.fd;
	while (!file) {
		st = stcp_dequeue(NULL);
		if (st)
			file = stcp_take(st, &request);
		else if (dev->f_flags & O_NONBLOCK)
			file = ERR_PTR(-EAGAIN);
		else if (wait_event_interruptible(queue_wait, !list_empty_careful(&queue)))
			file = ERR_PTR(-ERESTARTSYS);
	}
	rc = PTR_ERR_OR_ZERO(file);
	if (!rc && copy_to_user(to, &request, sizeof(request))) {
		fput(file);		/* which fails the handshake */
		rc = -EFAULT;
	}
	if (rc) {
		put_unused_fd(request.fd);
		return rc;
	}
	fd_install(request.fd, file);
	return sizeof(request);
}

static __poll_t queue_poll(struct file *dev, poll_table *wait)
{
	poll_wait(dev, &queue_wait, wait);
	return list_empty_careful(&queue) ? 0 : EPOLLIN | EPOLLRDNORM;
}

static int queue_open(struct inode *inode, struct file *dev)
{
	bool busy;

	spin_lock(&queue_lock);
	busy = is_open;
	is_open = true;
	spin_unlock(&queue_lock);
	return busy ? -EBUSY : stream_open(inode, dev);
}

static int queue_release(struct inode *inode, struct file *dev)
{
	struct stcp *st;

	spin_lock(&queue_lock);
	is_open = false;
	spin_unlock(&queue_lock);
	while ((st = stcp_dequeue(NULL)))
		stcp_drop(st);
	return 0;
}

static const struct file_operations queue_fops = {
	.owner = THIS_MODULE,
	.open = queue_open,
	.read = queue_read,
	.poll = queue_poll,
	.release = queue_release,
};

/* ---- counters: /sys/class/misc/stcp/ ---- */

#define STCP_FILE(name, format, value)							\
	static ssize_t name##_show(struct device *d, struct device_attribute *a, char *buf)	\
	{											\
		return sysfs_emit(buf, format, value);						\
	}											\
	static DEVICE_ATTR_RO(name);
#define STCP_COUNTER_FILE(name) STCP_FILE(name, "%ld\n", atomic_long_read(&stcp_counters.name))
#define STCP_ATTRIBUTE(name) &dev_attr_##name.attr,

STCP_FILE(protocol, "%d\n", stcp_protocol)
STCP_FILE(agent, "%d\n", READ_ONCE(is_open))
STCP_COUNTERS(STCP_COUNTER_FILE)
static struct attribute *stcp_attrs[] = {
	STCP_ATTRIBUTE(protocol) STCP_ATTRIBUTE(agent) STCP_COUNTERS(STCP_ATTRIBUTE) NULL
};
ATTRIBUTE_GROUPS(stcp);

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "stcp",
	.fops = &queue_fops,
	.mode = 0600,
	.groups = stcp_groups,
};

int stcp_agent_init(void)
{
	return misc_register(&device);
}

void stcp_agent_exit(void)
{
	misc_deregister(&device);
}
