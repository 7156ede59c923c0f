/* Sum of each of 9 rows of 300: one block of 128 a row, then a tree in shared memory. */
extern "C" __global__ void __launch_bounds__(128) kiln_test_0(const float *__restrict__ in0, float *__restrict__ out0)
{
    __shared__ float part[128];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < 300; i += 128) {
        sum += in0[blockIdx.x * 300 + i];
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            part[threadIdx.x] += part[threadIdx.x + half];
        }
        __syncthreads(); /* level */
    }
    if (threadIdx.x == 0) {
        out0[blockIdx.x] = part[0];
    }
}
