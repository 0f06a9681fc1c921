// SPDX-License-Identifier: Apache-2.0
/*
 * Finds and opens libcupti, and defines the tables that cupti.h declares. Only the watcher, the
 * library's own thread (inject.c), calls cupti_open().
 */
#include "cupti.h"
#include "glibc.h"
#include "podflame_cuda.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N(a)	  (sizeof(a) / sizeof((a)[0]))
#define MAX_MAJOR 19 /* the highest MAJOR of libcupti.so.MAJOR to search for */

/* ---- records and calls ---- */

#define NONE CUPTI_NO_FIELD
static const struct cupti_record records[] = {
	{CUPTI_CONCURRENT_KERNEL, PODFLAME_CUDA_KERNEL, 40, 44, 48, 92, 144, 104, 156, NONE, NONE},
	{CUPTI_KERNEL, PODFLAME_CUDA_KERNEL, 40, 44, 48, 92, 144, 104, 156, NONE, NONE},
	{CUPTI_MEMCPY, PODFLAME_CUDA_COPY, 32, 36, 40, 44, 64, NONE, NONE, 8, 4},
	{CUPTI_MEMCPY2, PODFLAME_CUDA_COPY, 32, 36, 40, 60, 72, NONE, NONE, 8, 4},
	{CUPTI_MEMSET, PODFLAME_CUDA_SET, 32, 36, 40, 44, 64, NONE, NONE, 8, NONE},
};

const struct cupti_record *cupti_record(uint32_t cupti_kind)
{
	for (size_t i = 0; i < N(records); i++)
		if (records[i].cupti_kind == cupti_kind)
			return &records[i];
	return NULL;
}

/*
 * A function of the runtime calls functions of the driver, with the same correlation id. NVIDIA
 * does not promise which of the two calls CUPTI reports, so the table has both. If a version of
 * CUPTI does not have an id, it refuses a callback for that id.
 */
enum {
	DRIVER = CUPTI_DRIVER,
	RUNTIME = CUPTI_RUNTIME,
	KERNEL = PODFLAME_CUDA_KERNEL,
	COPY = PODFLAME_CUDA_COPY,
	SET = PODFLAME_CUDA_SET,
	GRAPH = PODFLAME_CUDA_GRAPH,
};
const struct cupti_calls cupti_calls[] = {
	{DRIVER, 43, 70, COPY},	     /* cuMemcpyHtoD to cuMemcpy3DAsync */
	{DRIVER, 71, 82, SET},	     /* cuMemsetD8 to cuMemsetD2D32 */
	{DRIVER, 115, 117, KERNEL},  /* cuLaunch to cuLaunchGridAsync */
	{DRIVER, 216, 227, SET},     /* cuMemsetD8Async to cuMemsetD2D32Async */
	{DRIVER, 232, 234, COPY},    /* cu64Memcpy2D to cu64Memcpy2DAsync */
	{DRIVER, 248, 248, COPY},    /* cuMemcpy_v2 */
	{DRIVER, 249, 254, SET},     /* cuMemsetD8_v2 to cuMemsetD2D32_v2 */
	{DRIVER, 276, 293, COPY},    /* cuMemcpyHtoD_v2 to cuMemcpyHtoAAsync_v2 */
	{DRIVER, 305, 306, COPY},    /* cuMemcpy, cuMemcpyAsync */
	{DRIVER, 307, 307, KERNEL},  /* cuLaunchKernel */
	{DRIVER, 318, 321, COPY},    /* cuMemcpyPeer to cuMemcpy3DPeerAsync */
	{DRIVER, 397, 410, COPY},    /* ..._ptds */
	{DRIVER, 411, 416, SET},     /* ..._ptds */
	{DRIVER, 418, 427, COPY},    /* ..._ptsz */
	{DRIVER, 428, 433, SET},     /* ..._ptsz */
	{DRIVER, 442, 442, KERNEL},  /* cuLaunchKernel_ptsz */
	{DRIVER, 477, 478, KERNEL},  /* cuLaunchCooperativeKernel, _ptsz */
	{DRIVER, 480, 480, KERNEL},  /* cuLaunchCooperativeKernelMultiDevice */
	{DRIVER, 514, 515, GRAPH},   /* cuGraphLaunch, _ptsz */
	{DRIVER, 652, 653, KERNEL},  /* cuLaunchKernelEx, _ptsz */
	{DRIVER, 776, 779, COPY},    /* cuMemcpyBatchAsync, 3D, _ptsz */
	{DRIVER, 796, 799, COPY},    /* cuMemcpyBatchAsync_v2, 3D, _ptsz */
	{DRIVER, 837, 840, COPY},    /* cuMemcpyWithAttributesAsync, 3D, _ptsz */
	{RUNTIME, 13, 13, KERNEL},   /* cudaLaunch */
	{RUNTIME, 31, 48, COPY},     /* cudaMemcpy to cudaMemcpyFromSymbolAsync */
	{RUNTIME, 49, 52, SET},	     /* cudaMemset to cudaMemset2DAsync */
	{RUNTIME, 142, 143, SET},    /* cudaMemset3D, Async */
	{RUNTIME, 144, 145, COPY},   /* cudaMemcpy3D, Async */
	{RUNTIME, 160, 163, COPY},   /* cudaMemcpyPeer to cudaMemcpy3DPeerAsync */
	{RUNTIME, 211, 211, KERNEL}, /* cudaLaunchKernel */
	{RUNTIME, 213, 214, KERNEL}, /* cudaLaunch_ptsz, cudaLaunchKernel_ptsz */
	{RUNTIME, 215, 232, COPY},   /* ..._ptds, ..._ptsz */
	{RUNTIME, 233, 236, SET},    /* ..._ptds, ..._ptsz */
	{RUNTIME, 243, 244, SET},    /* cudaMemset3D_ptds, Async_ptsz */
	{RUNTIME, 245, 246, COPY},   /* cudaMemcpy3D_ptds, Async_ptsz */
	{RUNTIME, 249, 250, COPY},   /* cudaMemcpy3DPeer_ptds, Async_ptsz */
	{RUNTIME, 269, 270, KERNEL}, /* cudaLaunchCooperativeKernel, _ptsz */
	{RUNTIME, 272, 272, KERNEL}, /* cudaLaunchCooperativeKernelMultiDevice */
	{RUNTIME, 311, 312, GRAPH},  /* cudaGraphLaunch, _ptsz */
	{RUNTIME, 430, 431, KERNEL}, /* cudaLaunchKernelExC, _ptsz */
	{RUNTIME, 482, 485, COPY},   /* cudaMemcpyBatchAsync, 3D, _ptsz */
	{RUNTIME, 505, 506, KERNEL}, /* __cudaLaunchKernel, _ptsz */
	{RUNTIME, 509, 512, COPY},   /* cudaMemcpyBatchAsync of CUDA 13, 3D, _ptsz */
	{RUNTIME, 554, 557, COPY},   /* cudaMemcpyWithAttributesAsync, 3D, _ptsz */
};
const size_t cupti_n_calls = N(cupti_calls);

/* ---- the library ---- */

struct wanted {
	const char *prefix; /* how the base name of the library begins */
	char path[4096];    /* path of the library, if it is loaded; else "" */
};

static int is_wanted(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct wanted *w = arg;
	const char *base = strrchr(info->dlpi_name, '/');

	(void)size;
	base = base ? base + 1 : info->dlpi_name;
	if (strncmp(base, w->prefix, strlen(w->prefix)) != 0)
		return 0;
	snprintf(w->path, sizeof(w->path), "%s", info->dlpi_name);
	return 1;
}

/* Opens DIRECTORY/libcupti.so.VERSION; a directory "" means the loader's paths. */
static void *open_version(const char *directory, int major)
{
	char path[4224];
	void *library;

	if (major > 11) {
		snprintf(path, sizeof(path), "%slibcupti.so.%d", directory, major);
		return dlopen(path, RTLD_LAZY | RTLD_LOCAL);
	}
	/* the name of a libcupti of CUDA 11 has the minor number, too */
	for (int minor = 8; minor >= 0; minor--) {
		snprintf(path, sizeof(path), "%slibcupti.so.11.%d", directory, minor);
		library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
		if (library)
			return library;
	}
	return NULL;
}

/*
 * Opens the libcupti that belongs to the loaded libcudart. Searches the directory of libcudart,
 * that of PyPI's package, and that of the toolkit.
 */
static void *open_beside_runtime(void)
{
	static const char *const places[] = {"", "../../cuda_cupti/lib/", "../extras/CUPTI/lib64/",
					     "../../../extras/CUPTI/lib64/"};
	struct wanted runtime = {.prefix = "libcudart.so."};
	char directory[4160], *base;
	void *library = NULL;
	int major;

	if (!dl_iterate_phdr(is_wanted, &runtime))
		return NULL;
	base = strrchr(runtime.path, '/');
	if (!base)
		return NULL;
	major = (int)strtol(base + 1 + strlen(runtime.prefix), NULL, 10);
	for (size_t i = 0; i < N(places) && !library; i++) {
		snprintf(directory, sizeof(directory), "%.*s%s", (int)(base + 1 - runtime.path),
			 runtime.path, places[i]);
		library = open_version(directory, major);
	}
	return library;
}

/*
 * Returns the newest major version of CUDA that the driver supports; MAX_MAJOR if it is not known.
 */
static int driver_major(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int (*get_version)(int *) = driver ? dlsym(driver, "cuDriverGetVersion") : NULL;
	int version;

	if (!get_version || get_version(&version) != 0)
		return MAX_MAJOR;
	return version / 1000;
}

static void *open_by_path(const char *directory)
{
	void *library = NULL;
	int major = driver_major();

	for (major = major < MAX_MAJOR ? major : MAX_MAJOR; major >= 11 && !library; major--)
		library = open_version(directory, major);
	return library;
}

static void *open_library(void)
{
	struct wanted loaded = {.prefix = "libcupti.so"};
	void *library = NULL;

	if (dl_iterate_phdr(is_wanted, &loaded))
		library = dlopen(loaded.path, RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		library = open_beside_runtime();
	if (!library)
		library = open_by_path("");
	if (!library)
		library = open_by_path("/usr/local/cuda/extras/CUPTI/lib64/");
	if (!library)
		library = open_by_path("/usr/local/cuda/lib64/");
	return library;
}

/* Sets the functions in *c. Returns whether the library has all of them. */
static bool find_functions(void *library, struct cupti *c)
{
#define FIND(name) ((c->name = dlsym(library, "cupti" #name)) != NULL)
	return FIND(GetVersion) && FIND(Subscribe) && FIND(Unsubscribe) && FIND(EnableCallback) &&
	       FIND(ActivityRegisterCallbacks) && FIND(ActivityEnable) && FIND(ActivityDisable) &&
	       FIND(ActivityFlushAll) && FIND(ActivityGetNextRecord) &&
	       FIND(ActivityGetNumDroppedRecords) && FIND(ActivitySetAttribute) && FIND(Finalize);
#undef FIND
}

const struct cupti *cupti_open(void)
{
	static struct cupti functions;
	static bool found;
	void *library;

	if (found)
		return &functions;
	library = open_library();
	found = library && find_functions(library, &functions);
	return found ? &functions : NULL;
}
