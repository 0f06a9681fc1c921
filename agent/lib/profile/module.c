/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kind of code a file holds, by its path. This is the only place that decides it for frames of
 * native code.
 */
#include "lib/profile/profile.h"

#include <limits.h>

/*
 * The libraries of CUDA: the driver, the CUDA toolkit, and what NVIDIA builds on it for deep
 * learning, by the names of the files in NVIDIA's packages. '*': any name that begins so.
 */
static const char *const cuda_libraries[] = {
	/* the driver */
	"libcuda",
	"libcudadebugger",
	"libnvidia-ptxjitcompiler",
	"libnvidia-nvvm",
	/* runtime, compilers, tools */
	"libcudart",
	"libnvrtc",
	"libnvJitLink",
	"libnvvm",
	"libnvfatbin",
	"libcupti",
	"libnvperf*",
	"libpcsamplingutil",
	"libcheckpoint",
	"libcuinj64",
	"libaccinj64",
	"libnvToolsExt",
	/* mathematics */
	"libcublas",
	"libcublasLt",
	"libnvblas",
	"libcufft",
	"libcufftw",
	"libcurand",
	"libcusolver",
	"libcusolverMg",
	"libcusparse",
	"libcusparseLt",
	"libcutensor",
	"libcutensorMg",
	"libcudss",
	"libnpp*",
	"libnvjpeg",
	/* deep learning, communication, files */
	"libcudnn*",
	"libnccl",
	"libnvshmem*",
	"libcufile*",
};

/* Behind the name of a library comes ".so", or "-" and a hash or a part ("libcudart-d0da41ae"). */
static bool has_name(const char *file, const char *name)
{
	for (; *name && *name == *file; name++)
		file++;
	return *name == '*' || (!*name && (*file == '-' || str_has_prefix(file, ".so")));
}

enum frame_kind profile_module_kind(const char *path)
{
	size_t n = strnlen(path, PATH_MAX);
	const char *slash = memrchr(path, '/', n), *file = slash ? slash + 1 : path;

	if (!memmem(path, n, ".so", 3))
		return FRAME_APP;
	for (size_t i = 0; i < ARRAY_SIZE(cuda_libraries); i++)
		if (has_name(file, cuda_libraries[i]))
			return FRAME_CUDA;
	return FRAME_LIBRARY;
}
