/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions that libibverbs.so.1 exports: those that a program needs to find a device and to
 * make queue pairs. The functions that post and poll are the provider's.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../internal.h"

/* Macros of verbs.h, which choose between functions. */
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

static const struct provider *provider_of(struct ibv_context *context)
{
	return verbs_get_ctx(context)->priv->provider;
}

/* ---- devices ---- */

static const struct provider *providers[N_DEVICES];

/* A provider lies in the folder libibverbs beside this library. */
static const struct provider *open_provider(int n)
{
	char path[PATH_MAX];
	Dl_info own;
	void *library;

	if (!dladdr(&providers, &own))
		abort();
	snprintf(path, sizeof(path), "%.*s/libibverbs/libstandin%d-rdmav34.so",
		 (int)(strrchr(own.dli_fname, '/') - own.dli_fname), own.dli_fname, n);
	library = dlopen(path, RTLD_NOW);
	if (!library) {
		fprintf(stderr, "libibverbs: %s\n", dlerror());
		return NULL;
	}
	return dlsym(library, PROVIDER_SYMBOL);
}

static void open_providers(void)
{
	for (int i = 0; i < N_DEVICES; i++)
		providers[i] = open_provider(i);
}

static const struct provider *provider_of_device(const struct ibv_device *device)
{
	for (int i = 0; i < N_DEVICES; i++)
		if (providers[i] && &providers[i]->device == device)
			return providers[i];
	return NULL;
}

struct ibv_device **ibv_get_device_list(int *ret_n)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct ibv_device **list = calloc(N_DEVICES + 1, sizeof(*list));
	int n = 0;

	pthread_once(&once, open_providers);
	if (!list)
		return NULL;
	for (int i = 0; i < N_DEVICES; i++)
		if (providers[i])
			list[n++] = (struct ibv_device *)&providers[i]->device;
	if (ret_n)
		*ret_n = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return (uintptr_t)device;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	const struct provider *p = provider_of_device(device);

	if (!p) {
		errno = ENODEV;
		return NULL;
	}
	return p->open(device);
}

int ibv_close_device(struct ibv_context *context)
{
	provider_of(context)->close(context);
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	(void)context;
	*attr = (struct ibv_device_attr){.fw_ver = "stand-in",
					 .max_mr_size = UINT64_MAX,
					 .max_qp = 1024,
					 .max_qp_wr = 4096,
					 .max_sge = 16,
					 .max_cq = 1024,
					 .max_cqe = 65536,
					 .max_mr = 65536,
					 .max_pd = 1024,
					 .phys_port_cnt = 1};
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	/* The structure that programs pass begins as this one and is larger. */
	struct ibv_port_attr *a = (struct ibv_port_attr *)attr;

	(void)context;
	if (port != 1)
		return EINVAL;
	a->state = IBV_PORT_ACTIVE;
	a->max_mtu = a->active_mtu = IBV_MTU_4096;
	a->lid = 1;
	return 0;
}

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	(void)context;
	if (port != 1 || index)
		return -1;
	memset(gid, 0, sizeof(*gid));
	return 0;
}

/* ---- memory ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	if (pd)
		pd->context = context;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
				unsigned int access)
{
	(void)iova;
	(void)access;
	return provider_of(pd->context)->reg_mr(pd, addr, length);
}

/* Two exported functions have two versions each, so the C functions have other names. */
#define VERSION(name) __attribute__((symver(name)))

struct ibv_mr *reg_mr_1_1(struct ibv_pd *pd, void *addr, size_t length, int access);
int dereg_mr_1_1(struct ibv_mr *mr);

/* As in the real library, the older functions end with a jump to the newest one. */
VERSION("ibv_reg_mr@@IBVERBS_1.1")
struct ibv_mr *reg_mr_1_1(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, (uintptr_t)addr, (unsigned int)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova,
			       int access)
{
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned int)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
				 int fd, int access)
{
	(void)offset;
	(void)iova;
	(void)fd;
	(void)access;
	return provider_of(pd->context)->reg_mr(pd, NULL, length);
}

VERSION("ibv_dereg_mr@@IBVERBS_1.1")
int dereg_mr_1_1(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

/*
 * An object of version IBVERBS_1.0 points to one of version 1.1. As in the real library, the
 * functions of that version call the newer ones.
 */
struct pd_1_0 {
	void *context;
	uint32_t handle;
	struct ibv_pd *newer;
};
struct mr_1_0 {
	void *context;
	struct pd_1_0 *pd;
	uint32_t handle, lkey, rkey;
	struct ibv_mr *newer;
};
struct mr_1_0 *reg_mr_1_0(struct pd_1_0 *pd, void *addr, size_t length, int access);
int dereg_mr_1_0(struct mr_1_0 *mr);

VERSION("ibv_reg_mr@IBVERBS_1.0")
struct mr_1_0 *reg_mr_1_0(struct pd_1_0 *pd, void *addr, size_t length, int access)
{
	struct mr_1_0 *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return NULL;
	mr->pd = pd;
	mr->newer = reg_mr_1_1(pd->newer, addr, length, access);
	if (mr->newer)
		return mr;
	free(mr);
	return NULL;
}

VERSION("ibv_dereg_mr@IBVERBS_1.0")
int dereg_mr_1_0(struct mr_1_0 *mr)
{
	dereg_mr_1_1(mr->newer);
	free(mr);
	return 0;
}

/* ---- completions ---- */

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
			     struct ibv_comp_channel *channel, int comp_vector)
{
	(void)comp_vector;
	return provider_of(context)->create_cq(context, cqe, channel, cq_context);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	provider_of(cq->context)->destroy_cq(cq);
	return 0;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	return status == IBV_WC_SUCCESS ? "success" : "error";
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct standin_channel *c = calloc(1, sizeof(*c));
	int fds[2];

	if (!c)
		return NULL;
	if (pipe2(fds, O_CLOEXEC)) {
		free(c);
		return NULL;
	}
	c->channel = (struct ibv_comp_channel){.context = context, .fd = fds[0]};
	c->write_fd = fds[1];
	return &c->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct standin_channel *c = (struct standin_channel *)channel;

	close(c->channel.fd);
	close(c->write_fd);
	free(c);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **ret_cq, void **ret_context)
{
	if (read(channel->fd, ret_cq, sizeof(*ret_cq)) != sizeof(*ret_cq))
		return -1;
	provider_of((*ret_cq)->context)->await_cq(*ret_cq);
	*ret_context = (*ret_cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	cq->comp_events_completed += n;
}

/* ---- queue pairs ---- */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	return provider_of(pd->context)->create_srq(pd, attr);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	provider_of(srq->context)->destroy_srq(srq);
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	return provider_of(pd->context)->create_qp(pd, attr);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	return provider_of(qp->context)->modify_qp(qp, attr, mask);
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init_attr)
{
	(void)mask;
	provider_of(qp->context)->query_qp(qp, attr, init_attr);
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	provider_of(qp->context)->destroy_qp(qp);
	return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return provider_of(qp->context)->extended(qp);
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *ah = calloc(1, sizeof(*ah));

	(void)attr;
	if (ah)
		*ah = (struct ibv_ah){.context = pd->context, .pd = pd};
	return ah;
}

int ibv_destroy_ah(struct ibv_ah *ah)
{
	free(ah);
	return 0;
}
