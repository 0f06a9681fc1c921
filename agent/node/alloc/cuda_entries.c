/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of the CUDA driver (libcuda.so.1) that give or free memory of devices, or change or
 * query which contexts there are: the symbol, what the entry does, and which arguments say how
 * much. The facts are those of cuda.h, CUDA 11.8 to 13.5, and the names are the exports of the
 * drivers 535 and 550. In these two drivers, no two entries share an address, and none calls
 * another.
 *
 * An entry without a suffix may be an old one: since CUDA 3.2, cuda.h turns cuMemAlloc into
 * cuMemAlloc_v2, whose sizes have 64 bits. The entries ..._ptsz take the stream 0 as the thread's
 * own. docs/gpu-memory.md lists the entries whose memory is not counted.
 */
#include "node/alloc/cuda_entries.h"

#define SITE(kind_, ptr, size, count, flags_)                                                      \
	((struct pf_site){.kind = PF_SITE_GPU_##kind_,                                             \
			  .ptr_arg = (ptr),                                                        \
			  .size_arg = (size),                                                      \
			  .count_arg = (count),                                                    \
			  .flags = (flags_)})
#define NOT_COUNTED ((struct pf_site){})

/* X(name, site). A comment shows the arguments of the entries that follow it. */
#define MEMORY_ROWS(X)                                                                             \
	/* (address *, bytes) */                                                                   \
	X("cuMemAlloc_v2", SITE(ALLOC, 1, 2, 0, 0))                                                \
	X("cuMemAlloc", SITE(ALLOC, 1, 2, 0, PF_GPU_32))                                           \
	X("cuMemAllocManaged", SITE(ALLOC, 1, 2, 0, 0))                                            \
	/* (address *, pitch *, bytes of a row, rows, bytes of an element) */                      \
	X("cuMemAllocPitch_v2", SITE(PITCH, 1, 4, 2, 0))                                           \
	X("cuMemAllocPitch", SITE(PITCH, 1, 4, 2, PF_GPU_32))                                      \
	/* (address) */                                                                            \
	X("cuMemFree_v2", SITE(FREE, 1, 0, 0, 0))                                                  \
	X("cuMemFree", SITE(FREE, 1, 0, 0, PF_GPU_32))                                             \
	/* memory of the host */                                                                   \
	X("cuMemAllocHost_v2", NOT_COUNTED)                                                        \
	X("cuMemAllocHost", NOT_COUNTED)                                                           \
	X("cuMemFreeHost", NOT_COUNTED)

#define POOL_ROWS(X)                                                                               \
	/* (address *, bytes, stream) */                                                           \
	X("cuMemAllocAsync", SITE(ASYNC, 1, 2, 3, 0))                                              \
	X("cuMemAllocAsync_ptsz", SITE(ASYNC, 1, 2, 3, PF_GPU_PER_THREAD))                         \
	/* (address *, bytes, pool, stream) */                                                     \
	X("cuMemAllocFromPoolAsync", SITE(ASYNC, 1, 2, 4, PF_GPU_OF_POOL))                         \
	X("cuMemAllocFromPoolAsync_ptsz",                                                          \
	  SITE(ASYNC, 1, 2, 4, PF_GPU_OF_POOL | PF_GPU_PER_THREAD))                                \
	/* (address, stream) */                                                                    \
	X("cuMemFreeAsync", SITE(FREE, 1, 0, 0, 0))                                                \
	X("cuMemFreeAsync_ptsz", SITE(FREE, 1, 0, 0, 0))                                           \
	/* (pool *, properties *), (pool *, device) */                                             \
	X("cuMemPoolCreate", SITE(POOL, 1, 2, 0, PF_GPU_PROPS))                                    \
	X("cuDeviceGetDefaultMemPool", SITE(POOL, 1, 2, 0, 0))                                     \
	X("cuDeviceGetMemPool", SITE(POOL, 1, 2, 0, 0))                                            \
	/* (pool *, location *, type) */                                                           \
	X("cuMemGetDefaultMemPool", SITE(POOL, 1, 2, 0, PF_GPU_LOCATION))                          \
	X("cuMemGetMemPool", SITE(POOL, 1, 2, 0, PF_GPU_LOCATION))                                 \
	/* (pool) */                                                                               \
	X("cuMemPoolDestroy", SITE(POOL_DESTROY, 1, 0, 0, 0))

#define ARRAY_ROWS(X)                                                                              \
	/* (array *, descriptor *) */                                                              \
	X("cuArrayCreate_v2", SITE(ARRAY, 1, 2, 0, 0))                                             \
	X("cuArrayCreate", SITE(ARRAY, 1, 2, 0, PF_GPU_32))                                        \
	X("cuArray3DCreate_v2", SITE(ARRAY, 1, 2, 0, PF_GPU_3D))                                   \
	X("cuArray3DCreate", SITE(ARRAY, 1, 2, 0, PF_GPU_3D | PF_GPU_32))                          \
	/* (array *, descriptor *, levels) */                                                      \
	X("cuMipmappedArrayCreate", SITE(ARRAY, 1, 2, 3, PF_GPU_3D | PF_GPU_MIPMAP))               \
	X("cuArrayDestroy", SITE(FREE, 1, 0, 0, PF_GPU_IS_ARRAY))                                  \
	X("cuMipmappedArrayDestroy", SITE(FREE, 1, 0, 0, PF_GPU_IS_ARRAY))

#define HANDLE_ROWS(X)                                                                             \
	/* (handle *, bytes, properties *, flags) */                                               \
	X("cuMemCreate", SITE(HANDLE, 1, 2, 3, 0))                                                 \
	X("cuMemRelease", SITE(RELEASE, 1, 0, 0, 0))                                               \
	/* (handle *, address) */                                                                  \
	X("cuMemRetainAllocationHandle", SITE(RETAIN, 1, 0, 0, 0))                                 \
	/* (address, bytes, offset, handle, flags) */                                              \
	X("cuMemMap", SITE(MAP, 1, 2, 4, 0))                                                       \
	X("cuMemUnmap", SITE(UNMAP, 1, 2, 0, 0))                                                   \
	X("cuMemMapArrayAsync", SITE(UNSEEN, 0, 0, 0, PF_GPU_IS_ARRAY))                            \
	X("cuMemMapArrayAsync_ptsz", SITE(UNSEEN, 0, 0, 0, PF_GPU_IS_ARRAY))

/* Nodes of graphs. In the general entries, one argument points to the node's parameters. */
#define GRAPH_ROWS(X)                                                                              \
	X("cuGraphAddMemAllocNode", SITE(UNSEEN, 0, 0, 0, 0))                                      \
	X("cuGraphAddNode", SITE(UNSEEN, 0, 5, 0, 0))                                              \
	X("cuGraphAddNode_v2", SITE(UNSEEN, 0, 6, 0, 0))                                           \
	X("cuGraphAddNode_v3", SITE(UNSEEN, 0, 6, 0, 0))

#define CONTEXT_ROWS(X)                                                                            \
	X("cuInit", SITE(INIT, 0, 0, 0, 0))                                                        \
	X("cuGetExportTable", SITE(TABLE, 0, 0, 0, 0))                                             \
	/* (context *, flags, device), v3: (context *, list, n, flags, device), */                 \
	/* v4: (context *, parameters *, flags, device) */                                         \
	X("cuCtxCreate", SITE(CONTEXT, 1, 3, 0, 0))                                                \
	X("cuCtxCreate_v2", SITE(CONTEXT, 1, 3, 0, 0))                                             \
	X("cuCtxCreate_v3", SITE(CONTEXT, 1, 5, 0, 0))                                             \
	X("cuCtxCreate_v4", SITE(CONTEXT, 1, 4, 0, 0))                                             \
	X("cuGLCtxCreate", SITE(CONTEXT, 1, 3, 0, 0))                                              \
	X("cuGLCtxCreate_v2", SITE(CONTEXT, 1, 3, 0, 0))                                           \
	X("cuVDPAUCtxCreate", SITE(CONTEXT, 1, 3, 0, 0))                                           \
	X("cuVDPAUCtxCreate_v2", SITE(CONTEXT, 1, 3, 0, 0))                                        \
	X("cuCtxAttach", SITE(ATTACH, 1, 0, 0, 0))                                                 \
	X("cuCtxDetach", SITE(DESTROY, 1, 0, 0, PF_GPU_DETACH))                                    \
	X("cuCtxDestroy", SITE(DESTROY, 1, 0, 0, 0))                                               \
	X("cuCtxDestroy_v2", SITE(DESTROY, 1, 0, 0, 0))                                            \
	X("cuCtxSetCurrent", SITE(SET, 1, 0, 0, 0))                                                \
	X("cuCtxPushCurrent", SITE(PUSH, 1, 0, 0, 0))                                              \
	X("cuCtxPushCurrent_v2", SITE(PUSH, 1, 0, 0, 0))                                           \
	X("cuCtxPopCurrent", SITE(POP, 1, 0, 0, 0))                                                \
	X("cuCtxPopCurrent_v2", SITE(POP, 1, 0, 0, 0))                                             \
	/* (context *, device), (device) */                                                        \
	X("cuDevicePrimaryCtxRetain", SITE(PRIMARY, 1, 2, 0, 0))                                   \
	X("cuDevicePrimaryCtxRelease", SITE(PRIMARY_RELEASE, 0, 1, 0, 0))                          \
	X("cuDevicePrimaryCtxRelease_v2", SITE(PRIMARY_RELEASE, 0, 1, 0, 0))                       \
	X("cuDevicePrimaryCtxReset", SITE(PRIMARY_RESET, 0, 1, 0, 0))                              \
	X("cuDevicePrimaryCtxReset_v2", SITE(PRIMARY_RESET, 0, 1, 0, 0))                           \
	/* (green context *, resources, device, flags), (green context), */                        \
	/* (context *, green context) */                                                           \
	X("cuGreenCtxCreate", SITE(GREEN, 1, 3, 0, 0))                                             \
	X("cuGreenCtxDestroy", SITE(GREEN_DESTROY, 1, 0, 0, 0))                                    \
	X("cuCtxFromGreenCtx", SITE(FROM_GREEN, 1, 0, 2, 0))

#define QUERY_ROWS(X)                                                                              \
	X("cuCtxGetCurrent", SITE(CURRENT, 1, 0, 0, 0))                                            \
	/* (device *), v2: (device *, context) */                                                  \
	X("cuCtxGetDevice", SITE(DEVICE, 1, 0, 0, 0))                                              \
	X("cuCtxGetDevice_v2", SITE(DEVICE, 1, 0, 2, 0))

#define ROWS(X)                                                                                    \
	MEMORY_ROWS(X)                                                                             \
	POOL_ROWS(X) ARRAY_ROWS(X) HANDLE_ROWS(X) GRAPH_ROWS(X) CONTEXT_ROWS(X) QUERY_ROWS(X)

static const struct cuda_entry entries[] = {
#define X(name_, site_) {.name = (name_), .site = site_},
	ROWS(X)
#undef X
};

const struct cuda_entry *alloc_cuda_find(const char *symbol)
{
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		if (streq(entries[i].name, symbol))
			return &entries[i];
	return NULL;
}

const char *const alloc_cuda_marks[] = {
	"cuInit",
	"cuGetExportTable",
	"cuMemAlloc*",
	"cuMemFree*",
	"cuMemPoolCreate*",
	"cuMemPoolDestroy*",
	"cuDeviceGetDefaultMemPool*",
	"cuDeviceGetMemPool*",
	"cuMemGetDefaultMemPool*",
	"cuMemGetMemPool*",
	"cuArrayCreate*",
	"cuArray3DCreate*",
	"cuArrayDestroy*",
	"cuMipmappedArrayCreate*",
	"cuMipmappedArrayDestroy*",
	"cuMemCreate*",
	"cuMemRelease*",
	"cuMemRetainAllocationHandle*",
	"cuMemMap*",
	"cuMemUnmap*",
	"cuGraphAddMemAllocNode*",
	"cuGraphAddNode*",
	"cuCtxCreate*",
	"cuGLCtxCreate*",
	"cuVDPAUCtxCreate*",
	"cuCtxAttach*",
	"cuCtxDetach*",
	"cuCtxDestroy*",
	"cuCtxSetCurrent*",
	"cuCtxPushCurrent*",
	"cuCtxPopCurrent*",
	"cuCtxGetCurrent*",
	"cuCtxGetDevice*",
	"cuDevicePrimaryCtxRetain*",
	"cuDevicePrimaryCtxRelease*",
	"cuDevicePrimaryCtxReset*",
	"cuGreenCtxCreate*",
	"cuGreenCtxDestroy*",
	"cuCtxFromGreenCtx*",
	NULL,
};
