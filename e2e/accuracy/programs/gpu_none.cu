/* SPDX-License-Identifier: Apache-2.0 */
/* A program of NVIDIA's compiler: kernels, memory, streams and graphs. */
#include <cuda.h>

#include "gpu_none.h"

__global__ static void add(float *p, float value)
{
	p[threadIdx.x] += value;
}

CALL(of_memory)
{
	void *p = NULL;

	ret[0] = cudaMalloc(&p, 1000);
	ret[1] = cudaMallocManaged(&p, 1000);
	ret[2] = cudaMallocAsync(&p, 1000, 0);
	ret[3] = cudaMemcpy(p, &p, sizeof(p), cudaMemcpyHostToDevice);
	ret[4] = cudaFree((void *)4096);
	ret[5] = cudaGetLastError();
	ret[6] = cudaGetLastError();
}

CALL(of_launch)
{
	add<<<1, 32>>>(NULL, 1);
	ret[0] = cudaGetLastError();
	ret[1] = cudaDeviceSynchronize();
}

CALL(of_stream)
{
	cudaStream_t stream = NULL;
	cudaEvent_t event = NULL;

	ret[0] = cudaStreamCreate(&stream);
	add<<<1, 32, 0, stream>>>(NULL, 1);
	ret[1] = cudaGetLastError();
	ret[2] = cudaEventCreate(&event);
	ret[3] = cudaEventRecord(event, stream);
	ret[4] = cudaStreamSynchronize(stream);
	ret[5] = cudaStreamDestroy(stream);
}

CALL(of_graph)
{
	cudaGraphExec_t program = NULL;
	cudaStream_t stream = NULL;
	cudaGraph_t graph = NULL;

	ret[0] = cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
	add<<<1, 32, 0, stream>>>(NULL, 1);
	ret[1] = cudaStreamEndCapture(stream, &graph);
	ret[2] = cudaGraphInstantiate(&program, graph, 0);
	ret[3] = cudaGraphLaunch(program, stream);
	ret[4] = cudaGraphDestroy(graph);
}

static const struct call calls[] = {{"of_memory", of_memory},
				    {"of_launch", of_launch},
				    {"of_stream", of_stream},
				    {"of_graph", of_graph}};

int main(int argc, char **argv)
{
	run(argc, argv, calls, COUNT(calls));
}
