// SPDX-License-Identifier: Apache-2.0

// gpu: memory of a GPU in C++, through the CUDA runtime, as programs of nvcc call it. Its protocol
// is told.h's; runtime and driver are the stand-ins of e2e/gpu.
#include <memory>
#include <thread>
#include <vector>

#include "../../gpu/cuda_runtime.h"
#include "gpu.h"

namespace device
{
template <typename T> class Array
{
      public:
	explicit Array(size_t n)
	{
		void *p;
		WORKS(cudaMalloc(&p, n * sizeof(T)));
		data = static_cast<T *>(p);
	}
	~Array()
	{
		if (data)
			WORKS(cudaFree(data));
	}
	Array(Array &&other) noexcept : data(other.data)
	{
		other.data = nullptr;
	}
	Array(const Array &) = delete;

      private:
	T *data;
};

struct Free {
	void operator()(void *p) const
	{
		WORKS(cudaFree(p));
	}
};

template <typename T> __attribute__((noinline)) std::unique_ptr<T, Free> make(size_t n)
{
	void *p;
	WORKS(cudaMalloc(&p, n * sizeof(T)));
	return std::unique_ptr<T, Free>(static_cast<T *>(p));
}
} // namespace device

static std::vector<device::Array<double>> arrays;
static cudaStream_t stream;

FUNCTION(array_of_float)
{
	device::Array<float> a(1000);
}

FUNCTION(vector_of_arrays)
{
	for (size_t i = 1; i <= 3; i++)
		arrays.emplace_back(100 * i);
}

FUNCTION(unique)
{
	auto p = device::make<int>(500), q = device::make<int>(5);
	(void)q.release();
}

FUNCTION(managed)
{
	void *p;
	WORKS(cudaMallocManaged(&p, 70000, cudaMemAttachGlobal));
}

FUNCTION(pitched)
{
	void *p;
	size_t pitch;
	WORKS(cudaMallocPitch(&p, &pitch, 1000, 3));
}

FUNCTION(of_host) // no memory of a GPU
{
	void *p;
	WORKS(cudaMallocHost(&p, 4000));
	WORKS(cudaFreeHost(p));
}

FUNCTION(in_stream)
{
	void *p, *q;
	WORKS(cudaMallocAsync(&p, 8000, stream));
	WORKS(cudaMallocAsync(&q, 800, stream));
	WORKS(cudaFreeAsync(p, stream));
}

FUNCTION(in_own_stream)
{
	void *p, *q;
	WORKS(cudaMallocAsync_ptsz(&p, 8001, nullptr));
	WORKS(cudaMallocAsync_ptsz(&q, 801, nullptr));
	WORKS(cudaFreeAsync_ptsz(p, nullptr));
}

FUNCTION(in_lambda)
{
	auto allocate = [](size_t n) { device::Array<char> a(n), b(n + 1); };
	allocate(600);
}

FUNCTION(of_thread)
{
	device::Array<short> a(7000);
}

static void starts_thread()
{
	std::thread(of_thread).join();
}

FUNCTION(fails)
{
	void *p;
	standin_fail_next(1, cudaErrorMemoryAllocation);
	GIVES(cudaErrorMemoryAllocation, cudaMalloc(&p, 9000));
	GIVES(cudaErrorMemoryAllocation, cudaGetLastError());
}

FUNCTION(resets) // the second device, and all that is there
{
	void *p;
	WORKS(cudaSetDevice(1));
	WORKS(cudaMalloc(&p, 12000));
	WORKS(cudaDeviceReset());
	WORKS(cudaSetDevice(0));
}

int main(int argc, char **argv)
{
	open_told(argc, argv);
	wait_for_order();
	WORKS(cudaStreamCreate(&stream));
	arrays.reserve(3 * rounds);
	allocates("array_of_float", array_of_float, 4000, 0);
	allocates("vector_of_arrays", vector_of_arrays, 4800, 4800);
	allocates("unique", unique, 2020, 20);
	allocates("managed", managed, 70000, 70000);
	allocates("pitched", pitched, 3072, 3072);
	allocates("of_host", of_host, 0, 0);
	allocates("in_stream", in_stream, 8800, 800);
	allocates("in_own_stream", in_own_stream, 8802, 801);
	allocates("in_lambda", in_lambda, 1201, 0);
	allocates("of_thread", starts_thread, 14000, 0);
	allocates("fails", fails, 0, 0);
	allocates("resets", resets, 12000, 0);
	compare_with_driver();
	end();
}
