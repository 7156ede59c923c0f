/* Every candidate of the default policy, lowered and run in the bounds-checked interpreter of loop programs, gives the reference's values. */
#include "tests/unit/run_lowered.c"
#include "tests/unit/statements.h"

static const char *const ids[] = {"x86-64-avx2", "nvidia-v100", "x86-64-bf16"};

static const struct { const char *text, *inputs; } programs[] = {
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:19x11&b=f32:11x37"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x1&b=f32:1x1"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x20&b=f32:20x70"},
    {"c[M,N] +=! a[M,K]*b[N,K]", "a=f32:5x37&b=f32:7x37"},
    {"c[M,N] +=! a[K,M]*b[K,N]", "a=f32:13x17&b=f32:13x35"},
    {"c[B,M,N] +=! a[B,M,K]*b[B,K,N]", "a=f32:2x5x4&b=f32:2x4x17"},
    {"t[M,N] +=! a[M,K]*b[K,N]; y[M,N] = max(t[M,N]+v[N], 0.0)", "a=f32:9x8&b=f32:8x33&v=f32:33"},
    {"y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 5, Q in 19", "x=f32:1x2x5x19&w=f32:3x2x3x3"},
    {"y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*2+R-1,Q*2+S-1]*w[F,C,R,S] where P in 5, Q in 6", "x=f32:1x2x9x11&w=f32:3x2x3x3"},
    {"y[N,F,P,Q] +=! x[N,C,P,Q]*w[F,C]", "x=f32:2x3x5x7&w=f32:4x3"},
    /* transposed convolutions: phases of as many weights, and of fewer, at offsets; small planes, whose channels are the lanes; channels last */
    {"t[F,G,H,A,B] +=! pad(x,0.0)[C,A-R,B-S]*w[C,F,G+R*2,H+S*2] where G in 2, H in 2, R in 2, S in 2, A in 6, B in 18; "
     "y[F,P,Q] = t[F,(P+1)%2,(Q+1)%2,(P+1)//2,(Q+1)//2] where P in 10, Q in 34", "x=f32:3x5x17&w=f32:3x5x4x4:const"},
    {"t[F,G,H,A,B] +=! pad(x,0.0)[C,A-R+1,B-S+1]*pad(w,0.0)[C,F,G+R*2-1,H+S*2-1] where G in 2, H in 2, R in 2, S in 2, A in 5, B in 17; "
     "y[F,P,Q] = t[F,P%2,Q%2,P//2,Q//2] where P in 10, Q in 33", "x=f32:17x5x17&w=f32:17x5x3x3:const"},
    {"t[F,G,H,A,B] +=! pad(x,0.0)[C,A-R,B-S]*pad(w,0.0)[C,F,G+R*3,H+S*3] where G in 3, H in 3, R in 2, S in 2, A in 6, B in 6; "
     "y[F,P,Q] = t[F,P%3,Q%3,P//3,Q//3]+v[F] where P in 17, Q in 17", "x=f32:20x5x5&w=f32:20x9x5x5&v=f32:9"},
    {"t[F,G,H,A,B] +=! pad(x,0.0)[C,A-R+1,B-S+1]*pad(w,0.0)[C,F,G+R*2-1,H+S*2-1] where G in 2, H in 2, R in 2, S in 2, A in 4, B in 4; "
     "y[F,P,Q] = t[F,P%2,Q%2,P//2,Q//2] where P in 8, Q in 8", "x=f32:64x4x4&w=f32:64x32x3x3:const"},
    {"t[A,G,F] +=! pad(x,0.0)[A-R+1,C]*pad(w,0.0)[G+R*2-1,C,F] where G in 2, R in 2, A in 19; y[P,F] = t[P//2,P%2,F] where P in 37",
     "x=f32:19x12&w=f32:3x12x20:const"},
    {"t[C,G,H,A,B] +=! pad(x,0.0)[C,A-R+1,B-S+1]*pad(w,0.0)[C,G+R*2-1,H+S*2-1] where G in 2, H in 2, R in 2, S in 2, A in 5, B in 18; "
     "y[C,P,Q] = t[C,P%2,Q%2,P//2,Q//2] where P in 9, Q in 35", "x=f32:3x5x18&w=f32:3x3x3:const"},
    /* a matrix by a vector: lanes along the sum, rows combined together */
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:37x21&b=f32:21x1"},
    {"y[M] +=! a[M,K]*b[K]", "a=f32:33x64&b=f32:64"},
    {"c[B,M,N] +=! a[B,M,K]*b[B,K,N]", "a=f32:3x19x70&b=f32:3x70x1"},
    {"t[M] +=! a[M,K]*b[K]; y[M] = max(t[M]+v[M],0.0)", "a=f32:21x600&b=f32:600&v=f32:21"},
    /* few columns: lanes along the sum, whose last vector has a tail */
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:131x75&b=f32:75x3"},
    {"t[B,M,N] +=! a[B,M,K]*b[B,K,N]; y[B,M,N] = max(t[B,M,N]+v[N],0.0)", "a=f32:2x130x64&b=f32:2x64x7&v=f32:7"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:129x64&b=f32:64x8:const"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:129x141&b=f32:141x8:const"},
    {"c[B,M,N] +=! a[B,M,K]*b[B,K,N]", "a=f32:2x129x143&b=f32:2x143x6"},
    {"c[M,N] +=! a[M,K+5]*b[K,N] where K in 139", "a=f32:129x149&b=f32:139x5"},
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f64:140x70&b=f64:70x2"},
    {"c[N,M] +=! b[N,K]*a[K,M]", "a=f32:70x4&b=f32:150x70:const"},
    /* strips: strides, padding, tails of places and of channels, a batch, groups, what finishes the sums */
    {"y[N,F,P,Q] +=! x[N,C,P*2+R,Q*2+S]*w[F,C,R,S] where P in 7, Q in 21", "x=f32:1x3x15x43&w=f32:7x3x3x3"},
    {"y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 6, Q in 37", "x=f32:2x1x6x37&w=f32:5x1x3x3"},
    {"y[N,F,P,Q] +=! pad(x,0.0)[N,C,P*3+R-2,Q*3+S-2]*w[F,C,R,S] where P in 4, Q in 30", "x=f32:1x2x12x88&w=f32:9x2x5x4"},
    {"t[N,G,F,P,Q] +=! x[N,G,C,P+R,Q+S]*w[G,F,C,R,S] where P in 3, Q in 33; y[N,G,F,P,Q] = max(t[N,G,F,P,Q]+v[G,F],0.0)",
     "x=f32:1x2x2x5x35&w=f32:2x6x2x3x3&v=f32:2x6"},
    {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[C,R,S] where P in 4, Q in 18", "x=f32:1x2x4x18&w=f32:2x3x3"},
    {"y[N,C,P,Q] >=! x[N,C,P*2+R,Q*2+S] where P in 4, Q in 9, R in 2, S in 2", "x=f32:1x3x8x18"},
    {"t[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1] where P in 5, Q in 11, R in 3, S in 3; y[N,C,P,Q] = t[N,C,P,Q]/9.0", "x=f32:1x2x5x11"},
    {"y[I] +=! x[I,J]", "x=f32:7x101"},
    {"y[J] +=! x[I,J]", "x=f32:23x41"},
    {"y[J] +=! cast(x[I,J],i32)", "x=i8:23x141"},
    {"y[J] +=! cast(x[I,J],i32)", "x=u8:20x64"},
    {"y[] +=! x[I,J]", "x=f32:13x17"},
    {"y[N,C,P,Q] >=! pad(x,-1e30)[N,C,P+R-2,Q+S-2] where P in 9, Q in 13, R in 5, S in 5", "x=f32:1x6x9x13"},
    {"y[N,C,P,Q] >=! pad(x,-inf)[N,C,P*2+R*2-1,Q*3+S*2-2] where P in 5, Q in 13, R in 3, S in 3", "x=f32:2x3x13x41"},
    {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-2,Q+S-1] where P in 11, Q in 31, R in 3, S in 4", "x=f32:2x5x11x31"},
    {"y[N,C,P,Q] >=! pad(x,-inf)[N,C,P*2+R,Q*2+S-1] where P in 6, Q in 17, R in 3, S in 3", "x=f16:1x3x13x33"},
    {"y[N,C,P,Q] <=! x[N,C,P*2+R,Q*2+S] where P in 7, Q in 18, R in 2, S in 2", "x=bf16:2x3x14x37"},
    {"y[N,C,P,Q] >=! x[N,C,P*4+R,Q*4+S] where P in 5, Q in 5, R in 3, S in 3", "x=f32:2x3x19x20"},
    {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R,Q+S] where P in 11, Q in 33, R in 2, S in 2", "x=f32:2x5x11x33"},
    {"y[N,C,P,Q] +=! x[N,C,P*7+R,Q*6+S] where P in 2, Q in 5, R in 2, S in 2", "x=f32:1x3x10x29"},
    {"y[N,C,P,Q] >=! pad(x,-inf)[N,C,P*2+R,Q*2+S] where P in 5, Q in 7, R in 2, S in 2", "x=f32:2x3x9x13"},
    {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P*8+R,Q*8+S-1] where P in 2, Q in 9, R in 3, S in 3", "x=f32:1x2x11x66"},
    {"y[N,C,P,Q] >=! x[N,C,P*3+R,Q*3+S] where P in 4, Q in 6, R in 3, S in 3", "x=f16:2x3x12x19"},
    {"y[N,C,P,Q] >=! x[N,C,P*4+R,Q*4+S] where P in 1, Q in 1, R in 4, S in 4", "x=f32:2x37x5x5"},
    {"t[N,C] +=! x[N,C,R+1,S+1] where R in 3, S in 3; y[N,C] = t[N,C]/9.0", "x=f32:2x37x5x5"},
    {"y[N,C] >=! pad(x,-inf)[N,C,R-1,S*2+2] where R in 4, S in 3", "x=f32:2x40x5x6"},
    {"y[N,C] +=! x[N,C,R*3] where R in 4", "x=f32:3x19x12"},
    {"y[N,C] >=! x[N,C,R,S] where R in 3, S in 4", "x=i32:2x33x7x4"},
    {"t[N,C] +=! x[N,C,H,W]; y[N,C] = t[N,C]/49.0", "x=f32:2x37x7x7"},
    {"y[N,P,Q,C] >=! pad(x,-1e30)[N,P*2+R-2,Q*2+S-2,C] where P in 6, Q in 7, R in 5, S in 5", "x=f32:2x11x13x21"},
    {"t[N,C,P,Q] +=! x[N,C,P*3+R,Q*3+S] where P in 5, Q in 7, R in 7, S in 7; y[N,C,P,Q] = t[N,C,P,Q]/49.0", "x=f32:1x5x19x25"},
    {"y[I] >=! x[I,J]", "x=f32:3x5"},
    {"y[I] +=! x[I,J]", "x=f32:129x49"},
    {"y[A,I] >=! x[A,I,J]", "x=f32:2x37x11"},
    {"m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; y[I,J] = e[I,J]/s[I]", "x=f32:6x50"},
    {"u[N] +=! x[N,C]; t[N] +=! (x[N,C]-u[N]/extent(C))*(x[N,C]-u[N]/extent(C)); "
     "y[N,C] = (x[N,C]-u[N]/extent(C))/(t[N]/extent(C)+1.0)*g[C]+b[C]", "x=f32:5x37&g=f32:37&b=f32:37"},
    {"m[A,B] >=! x[A,B,J]; e[A,B,J] = exp(x[A,B,J]-m[A,B]); s[A,B] +=! e[A,B,J]; y[A,B,J] = e[A,B,J]/s[A,B]", "x=f32:3x5x37"},
    {"m[N,H,W] >=! x[N,C,H,W]; e[N,C,H,W] = exp(x[N,C,H,W]-m[N,H,W]); s[N,H,W] +=! e[N,C,H,W]; y[N,C,H,W] = e[N,C,H,W]/s[N,H,W]", "x=f32:2x5x7x9"},
    {"m[N,H,W] >=! x[N,C,H,W]; e[N,C,H,W] = exp(x[N,C,H,W]-m[N,H,W]); s[N,H,W] +=! e[N,C,H,W]; y[N,C,H,W] = e[N,C,H,W]/s[N,H,W]", "x=f32:2x3x2x3"},
    {"u[N,G] +=! x[N,G,C,H]; q[N,G] +=! (x[N,G,C,H]-u[N,G])*(x[N,G,C,H]-u[N,G]); y[N,G,C,H] = (x[N,G,C,H]-u[N,G])*q[N,G]*g[G,C]",
     "x=f32:2x3x4x9&g=f32:3x4"},
    {"q[I] +=! x[I,J]*x[I,J]; y[I] +=! x[I,J]*q[I]", "x=f32:9x19"},
    {"y[J,I] = x[I,J]", "x=f32:11x33"},
    {"y[I] = max(x[I], 0.0)", "x=f32:531"},
    {"y[I,J] = x[I,J] + v[J]", "x=f32:11x37&v=f32:37"},
    {"y[I,J,K] = x[I,J,K] * v[I,K]", "x=f32:17x11x3&v=f32:17x3"},
    {"in x: f32[]; y[] = x[] * 2.0", ""},
    {"c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=i8:9x12&b=i8:12x21"},
    {"c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=i8:19x111&b=i8:111x37"},
    {"y[N,P,Q,F] +=! cast(pad(x,0)[N,P+R-1,Q+S-1,C],i32)*cast(w[R,S,C,F],i32) where P in 5, Q in 6, R in 3, S in 3", "x=i8:1x5x6x18&w=i8:3x3x18x17"},
    {"y[N,F,P,Q] +=! cast(pad(x,0)[N,C,P+R-1,Q+S-1],i32)*cast(w[F,C,R,S],i32) where P in 3, Q in 7, R in 3, S in 3",
     "x=i8:1x18x3x7&w=i8:64x18x3x3"},
    /* scatters: indices from -3 to 3, so that some are dropped and many meet */
    {"acc[idx[I],C] +=. u[I,C]", "acc=f32:5x37&idx=i64:23&u=f32:23x37"},
    {"acc[idx[I],C] =. u[I,C]", "acc=f32:3x70&idx=i32:9&u=f32:9x70"},
    {"acc[J,idx[I],C] <=. u[J,I,C]", "acc=i32:2x3x5&idx=i64:9&u=i32:2x9x5"},
    {"y[A,B] = x[A,B]*2.0; y[A,select(i[A,K]<0, i[A,K]+11, i[A,K])] =. u[A,K]; z[A,B] = y[A,B]+1.0", "x=f32:9x11&i=i64:9x8&u=f32:9x8"},
    {"t[I] = i[I]+1; acc[t[I],C] >=. u[I,C]*2.0; z[I] = t[I]*2", "acc=f32:5x9&i=i64:11&u=f32:11x9"},
    {"acc[idx[I,0],idx[I,1]] *=. u[I]", "acc=f32:4x3&idx=i64:19x2&u=f32:19"},
    {"s[M] +=! x[M,K]; s[i[J]] +=. u[J]; y[M,K] = x[M,K]*s[M]", "x=f32:5x9&i=i64:13&u=f32:13"},
    {"acc[C,R] +=. x[C]*w[R,S] where S in 3", "acc=f32:7x5&x=f32:7&w=f32:5x3"},
    {"x[i[I]] =. u[I]; y[i[I]] =. x_out[i[I]]", "x=f32:9&i=i64:7&u=f32:7&y=f32:5"},
    {"acc[0] +=. u[I]", "acc=f32:1&u=f32:9"},
    /* transposed convolutions: the weights are read under a select, at quotients and remainders */
    {"y[N,F,P,Q] +=! select((P+1)%2+2*I<3 && (Q+1)%2+2*J<3, pad(x,0.0)[N,C,(P+1)//2-I,(Q+1)//2-J]*w[C,F,(P+1)%2+2*I,(Q+1)%2+2*J], 0.0) "
     "where P in 8, Q in 8, I in 2, J in 2", "x=f32:1x16x4x4&w=f32:16x8x3x3"},
    {"y[N,F,P] +=! select(P%2==0, pad(x,0.0)[N,C,(P//2-P//2%2-J*2)//2]*pad(w,0.0)[C,F,P//2%2+J*2], 0.0) where P in 21, J in 2",
     "x=f32:2x3x5&w=f32:3x4x3"},
    {"t[M,S] +=! x[M,S*8+I] where S in 5, I in 8; p[M,S] +=! select(I<S, t[M,I], 0.0) where S in 5; "
     "q[M,S] +=! select(I<=S%8, x[M,S//8*8+I], 0.0) where S in 40, I in 8; y[M,S] = q[M,S] + p[M,S//8]", "x=f32:3x40"},
    {"y[M,I] +=! pad(x,0.0)[M,Q*5+C]*w[I//5,Q,(I-C)%5] where I in 15, C in 5", "x=f32:7x13&w=f32:3x3x5"},
    /* dots of halves: tails of rows, lanes and terms; packed by every task, and ahead */
    {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:34x65&b=bf16:65x37"},
    {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:3x131&b=bf16:131x214"}, /* packed step by step: rows of blocks, some of them not whole */
    {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:1x130&b=bf16:130x520"},
    {"c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=u8:5x133&b=i8:133x199"},
    {"c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=i8:2x260&b=i8:260x141"},
    {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:121x46&b=bf16:46x13"}, /* vectors of results that are longer than rows */
    {"c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=i8:121x47&b=i8:47x14"},
    {"c[M,N] +=! cast(a[M,K],f32)*cast(b[K,N],f32)", "a=bf16:34x66&b=bf16:66x48:const"},
    {"c[M,N] +=! cast(a[M,K],f32)*cast(b[N,K],f32)", "a=bf16:35x63&b=bf16:45x63:const"},
    /* windows of halves and bytes over constants packed ahead: padding, strides, terms that are no multiple, results that are turned */
    {"y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C,F] where P in 5, Q in 9", "x=bf16:1x5x9x18&w=bf16:3x3x18x46:const"},
    {"y[N,P,Q,F] +=! cast(pad(x,0.0)[N,P*2+R-1,Q*2+S-1,C],f32)*cast(w[R,S,C,F],f32) where P in 5, Q in 7", "x=bf16:2x9x13x17&w=bf16:3x3x17x32:const"},
    {"y[N,P,Q,F] +=! cast(pad(x,3)[N,P+R-1,Q+S-1,C],i32)*cast(w[F,R,S,C],i32) where P in 7, Q in 6", "x=u8:1x7x6x20&w=i8:32x3x3x20:const"},
    {"y[N,P,Q,F] +=! cast(x[N,P+R,Q+S,C],i32)*cast(w[R,S,C,F],i32)", "x=u8:1x9x8x22&w=i8:3x3x22x30:const"},
    {"t[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 5, Q in 9; y[N,F,P,Q] = max(t[N,F,P,Q] + v[F], cast(0.0,bf16))",
     "x=bf16:1x18x5x9&w=bf16:48x18x3x3:const&v=bf16:48"},
    {"y[N,F,P,Q] +=! cast(pad(x,7)[N,C,P*2+R-1,Q*2+S-1],i32)*cast(w[F,C,R,S],i32) where P in 9, Q in 8", "x=u8:2x21x17x15&w=i8:32x21x3x3:const"},
    {"y[N,F,P] +=! cast(x[N,C,P],i32)*cast(w[F,C],i32)", "x=i8:1x36x70&w=i8:32x36:const"},
    {"t[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 7, Q in 7; y[N,F,P,Q] = max(t[N,F,P,Q]*s[F] + z[N,F,P,Q], 0.0)",
     "x=f32:2x80x7x7&w=f32:45x80x3x3:const&s=f32:45&z=f32:2x45x7x7"},
    {"y[J,I] = x[I,J]", "x=bf16:21x33"},
    {"y[J,I] = x[I,J]", "x=i8:19x35"},
    {"y[J,I] = select(b[I,J], x[I,J], z[J,I])", "b=bool:19x35&x=f32:19x35&z=f32:35x19"},
    {"y[J,I] = select(b[I,J], x[I,J], z[J,I])", "b=bool:35x2&x=f32:35x2&z=f32:2x35"},
    {"y[J,B,I] = max(cast(x[B,I,J],f32), z[I])", "x=bf16:3x17x18&z=f32:17"},
    /* of signed bytes: what corrects for the sign is summed ahead */
    {"c[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32)", "a=i8:19x111&b=i8:111x48:const"},
    {"c[M,N] +=! cast(a[M,K],i32)*cast(b[N,K],i32)", "a=i8:19x111&b=i8:45x111:const"},
    {"c[N,M] +=! cast(a[M,K],i32)*cast(b[N,K],i32)", "a=i8:19x111&b=i8:45x111:const"},
    {"s[M] +=! cast(a[M,K],i32); t[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32); c[M,N] = cast(t[M,N]-3*s[M],f32)*0.5",
     "a=i8:19x112&b=i8:112x48:const"},
    /* factors packed ahead: rows and panels that do not come out even, padding, strides, groups, an epilogue, channels first */
    {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:19x111&b=f32:111x37:const"},
    {"c[M,N] +=! a[M,K]*b[N,K]", "a=f32:3x20&b=f32:13x20:const"},
    {"t[N,P,Q,F] +=! pad(x,0.0)[N,P*2+R-1,Q*2+S-1,C]*w[F,C,R,S] where P in 3, Q in 9; y[N,P,Q,F] = max(t[N,P,Q,F] + z[N,P,Q,F]*s[F], 0.0)",
     "x=f32:2x6x17x5&w=f32:37x5x3x3:const&z=f32:2x3x9x37&s=f32:37:const"},
    {"y[N,P,Q,F] +=! pad(x,0.0)[N,C,P*2+R-3,Q*2+S-3]*w[F,C,R,S] where P in 5, Q in 6", "x=f32:1x3x9x11&w=f32:20x3x7x7:const"},
    {"t[N,P,Q,F] +=! x[N,P,Q,C]*w[F,C]; y[N,P,Q,F] = max(t[0,P,Q,F]*s[F,0] + z[0,P,Q,F], 0.0) where N in 1", /* bands of joined rows */
     "x=f32:1x31x33x3&w=f32:21x3:const&s=f32:21x1:const&z=f32:1x31x33x21"},
    /* biased sums that what finishes them reads several times */
    {"t[M,N] +=! a[M,K]*b[K,N]; u[M,N] = t[M,N]+v[N]; y[M,N] = select(u[M,N]<0.0, u[M,N]*0.1, u[M,N])", "a=f32:19x111&b=f32:111x37:const&v=f32:37"},
    {"t[N,P,Q,F] +=! pad(x,0.0)[N,P*2+R-1,Q*2+S-1,C]*w[F,C,R,S] where P in 3, Q in 9; u[N,P,Q,F] = t[0,P,Q,F]+v[F] where N in 1; "
     "y[N,P,Q,F] = u[0,P,Q,F]*min(max(u[N,P,Q,F]+3.0, 0.0), 6.0) + z[N,P,Q,F]", "x=f32:1x6x17x5&w=f32:37x5x3x3:const&v=f32:37&z=f32:1x3x9x37"},
    {"s[M] +=! a[M,K]; u[M] = s[M]*0.01; y[M] = u[M]*exp(u[M])", "a=f32:19x111"},
    {"t[M,N] +=! cast(a[M,K],i32)*cast(b[K,N],i32); u[M,N] = t[M,N]+3; y[M,N] = max(u[M,N]*2, u[M,N])", "a=u8:19x112&b=i8:112x48:const"},
    {"t[N,P,Q,F] +=! x[N,P,Q,F//17*4+C]*w[F,C]; y[N,P,Q,F] = max(t[0,P,Q,F]*s[F,0,0], 0.0) where N in 1, F in 51", /* groups with an epilogue */
     "x=f32:1x3x5x12&w=f32:51x4:const&s=f32:51x1x1:const"},
    {"t[N,P,Q,F] +=! x[N,P,Q,F//17*4+C]*w[F,C]; y[N,P,Q,F] = max(t[N,P,Q,F], 0.0) where F in 34", /* bands, all groups inside */
     "x=f32:2x17x33x8&w=f32:34x4:const"},
    {"y[N,P,Q,G,F] +=! x[N,P,Q,G,C]*w[G,F,C]", "x=f32:1x3x5x3x4&w=f32:3x17x4:const"},
    {"y[N,P,Q,C] +=! pad(x,0.0)[N,P*2+R-1,Q*2+S-1,C]*w[C,0,R,S] where P in 4, Q in 9", "x=f32:1x7x17x21&w=f32:21x1x3x3:const"},
    {"y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 5, Q in 19", "x=f32:1x2x5x19&w=f32:3x2x3x3:const"},
    {"y[N,C,H,W] = pad(x,0.0)[N,C,H+i[C]//3-1,W+i[C]%3-1] where H in 5, W in 17", "x=f32:1x6x5x17&i=i32:6"},
    /* columns of a softmax, of a norm, in turns that do not come out even */
    {"m[N,W] >=! x[N,C,W]; e[N,C,W] = exp(x[N,C,W]-m[N,W]); s[N,W] +=! e[N,C,W]; y[N,C,W] = e[N,C,W]/s[N,W]", "x=f32:3x5x37"},
    {"m[N,W] >=! x[N,C,W]; e[N,C,W] = exp(x[N,C,W]-m[N,W]); s[N,W] +=! e[N,C,W]; y[N,C,W] = e[N,C,W]/s[N,W]", "x=f32:2x7x201"},
    {"u[W] +=! x[C,W]; q[W] +=! (x[C,W]-u[W]*0.25)*(x[C,W]-u[W]*0.25); y[C,W] = (x[C,W]-u[W]*0.25)*q[W]*g[C]+b[W]", "x=f32:4x83&g=f32:4&b=f32:83"},
    {"m[W] >=! x[C,W]; s[W] +=! exp(x[C,W]-m[W]); y[C,W] = x[C,W]-m[W]-log(s[W])", "x=f64:6x75"},
    /* which tensor an element comes from: along the lanes, outside of them, of three, in triangles, from either side */
    {"y[I,J] = select(J<13, a[I,J], b[I,J-13]) where J in 37", "a=f32:5x13&b=f32:5x24"},
    {"y[I,J] = select(J<=4, b[J], select(J<40, a[I,J-5], c[J-40,I])) where I in 7, J in 61", "a=u8:7x35&b=u8:5&c=u8:21x7"},
    {"y[I,C,P] = select(C<3, a[I,C,P], select(4<=C, b[I,C-4,P], v[P])) where C in 6", "a=f32:2x3x19&b=f32:2x2x19&v=f32:19"},
    {"y[I,J] = select(J<=I, a[I,J], -2.0)", "a=f32:21x33"},
    {"y[B,I,J] = select(I<J, a[B,I,J], v[J])", "a=bf16:2x21x33&v=bf16:33"},
    {"y[I,J] = select(J<I+3 && 2<J, a[I,J], b[J,I])", "a=f64:9x21&b=f64:21x9"},
    {"y[I,J] = select(J==I, 1.0, a[I,J]*2.0)", "a=f32:18x21"},
    {"y[M,S] +=! select(I<=S%16, pad(x,0.0)[M,S//16*16+I], 0.0) where S in 75, I in 16", "x=f32:3x75"},
};
enum { NPROGRAMS = sizeof programs / sizeof programs[0], NIDS = sizeof ids / sizeof ids[0], TOP = 2 };

static void candidates_run(void **state)
{
#ifdef __SANITIZE_THREAD__ /* its shadow stack grows with every switch of the interpreter's fibers */
    skip();
#endif
    (void)state;
    for (int i = 0; i < NPROGRAMS; i++) {
        for (int h = 0; h < NIDS; h++) {
            kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            kn_hw *hw = device(a, ids[h]);
            bool dots = strstr(programs[i].inputs, "8:") || strstr(programs[i].inputs, "bf16:");
            if (hw->nintrins > 2 && !dots) { /* what its dot instructions have no part in runs as on the first */
                kiln_arena_close(a);
                continue;
            }
            kn_program *c;
            kiln_diag d = {0};
            kiln_candidates *list = constructed(a, programs[i].text, programs[i].inputs, hw, TOP, &c);
            double *want[KILN_MAX_TENSORS] = {0};
            fresh(c, want);
            if (kn_ref_all(a, c, want, &d)) fail_msg("program %d: %s", i, d.message);
            for (int r = 0; r < list->n; r++) {
                char what[96];
                snprintf(what, sizeof what, "program %d on %s, candidate %d", i, ids[h], r);
                run_one(a, c, hw, list->c[r].trace, want, what);
            }
            discard(want, c->ntensors);
            kiln_arena_close(a);
        }
    }
}

/* Stages that share their rows are one parallel region without temporaries in memory, whatever the rank and wherever the reduced axis stands. */
static void rows_are_one_region(void **state)
{
    static const struct { const char *text, *inputs; } one[] = {
        {"m[I] >=! x[I,J]; e[I,J] = exp(x[I,J]-m[I]); s[I] +=! e[I,J]; y[I,J] = e[I,J]/s[I]", "x=f32:96x300"},
        {"m[N,H,W] >=! x[N,C,H,W]; e[N,C,H,W] = exp(x[N,C,H,W]-m[N,H,W]); s[N,H,W] +=! e[N,C,H,W]; y[N,C,H,W] = e[N,C,H,W]/s[N,H,W]",
         "x=f32:2x12x20x31"},
        {"u[A,B] +=! x[A,B,C]; v[A,B] = u[A,B]/extent(C); q[A,B] +=! (x[A,B,C]-v[A,B])*(x[A,B,C]-v[A,B]); "
         "y[A,B,C] = (x[A,B,C]-v[A,B])*q[A,B]*g[C]", "x=f32:6x20x77&g=f32:77"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, "x86-64-avx512");
        kn_program *c;
        kiln_candidates *list = constructed(a, one[i].text, one[i].inputs, hw, 1, &c);
        kn_lprog *l = lowered(a, c, hw, list->c[0].trace, one[i].text);
        if (l->nfns != 1 || l->ntemps) fail_msg("rows %zu: %d regions, %d temporaries\n%s", i, l->nfns, l->ntemps, list->c[0].trace.p);
        kiln_arena_close(a);
    }
}

/* Windows over planes with the channels as lanes: on vectors of 8 and 16, where there are that many channels, a candidate turns the planes, and all
 * candidates give what the reference does. `at`: the number of channels from which on it is to be there, 0: never. */
static void planes_are_lanes(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    static const char sum[] = "y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[C,R,S] where P in 5, Q in 7";
    static const struct { const char *text, *inputs; int channels, at; int64_t l2; } one[] = {
        {sum, "x=f32:1x7x5x7&w=f32:7x3x3", 7, 8, 0},
        {sum, "x=f32:1x9x5x7&w=f32:9x3x3", 9, 8, 0},
        {sum, "x=f32:2x16x5x7&w=f32:16x3x3", 16, 8, 0},
        {sum, "x=f32:1x17x5x7&w=f32:17x3x3:const", 17, 8, 0},
        {sum, "x=f64:1x7x5x7&w=f64:7x3x3", 7, 4, 0},
        {sum, "x=f16:1x17x5x7&w=f16:17x3x3", 17, 8, 0},
        {"y[N,C,P,Q] +=! cast(pad(x,0.0)[N,C,P+R-1,Q+S-1],f32)*cast(w[C,R,S],f32) where P in 5, Q in 7",
         "x=bf16:1x17x5x7&w=bf16:17x3x3", 17, 8, 0},
        {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P*2+R-3,Q*2+S-2]*w[C,0,R,S] where P in 9, Q in 7", "x=f32:2x21x17x13&w=f32:21x1x7x5", 21, 8, 0},
        {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P*3+R*2-1,Q*3+S*2]*w[C,R,S] where P in 6, Q in 2", "x=f32:1x31x19x7&w=f32:31x3x3", 31, 8, 0},
        {"y[N,C,P,Q] +=! x[N,C,P+R,Q+S]*w[C,R,S] where P in 9, Q in 7", "x=f32:1x19x11x9&w=f32:19x3x3", 19, 8, 0},
        {"y[N,C,P,Q] >=! pad(x,-inf)[N,C,P*2+R-1,Q*2+S-1] where P in 9, Q in 9, R in 3, S in 3", "x=f32:1x23x17x17", 23, 8, 0},
        {"y[N,C,P] +=! pad(x,0.0)[N,C,P+R-2]*w[C,R] where P in 37", "x=f32:2x17x37&w=f32:17x5", 17, 8, 0},
        {"y[N,C,D,P,Q] >=! x[N,C,D+T,P+R,Q+S] where D in 3, P in 4, Q in 5, T in 2, R in 2, S in 2", "x=f32:1x16x4x5x6", 16, 8, 0},
        {"t[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[C,R,S] where P in 11, Q in 6; y[N,C,P,Q] = max(t[N,C,P,Q]*2.0+b[C]+z[N,C,P,Q], 0.0)",
         "x=f32:1x18x11x6&w=f32:18x3x3&b=f32:18&z=f32:1x18x11x6", 18, 8, 0},
        {"t[N,C,P,Q] +=! pad(x,0.0)[N,C,P*2+R-1,Q*2+S-1] where P in 6, Q in 7, R in 3, S in 3; y[N,C,P,Q] = t[N,C,P,Q]*"
         "(1/(min(cast(P,f32)*2+2, 11)-max(cast(P,f32)*2-1, 0))*(1/(min(cast(Q,f32)*2+2, 13)-max(cast(Q,f32)*2-1, 0))))",
         "x=f32:1x29x11x13", 29, 8, 0},
        /* rows of the tensor that are no whole vectors, joined: three and fewer columns, padding on one side, columns that are left out, bands */
        {"y[N,C,P,Q] >=! pad(x,-inf)[N,C,P+R-1,Q+S-1] where P in 17, Q in 3, R in 3, S in 3", "x=f32:1x16x17x3", 16, 8, 0},
        {"y[N,C,P,Q] >=! pad(x,-inf)[N,C,P+R,Q+S-2] where P in 13, Q in 5, R in 2, S in 4", "x=f32:2x19x13x5", 19, 8, 0},
        {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P*2+R-3,Q*2+S] where P in 11, Q in 6, R in 4, S in 2", "x=f32:2x37x19x13", 37, 8, 0},
        {"y[N,C,P,Q] +=! x[N,C,P*3+R,Q*3+S] where P in 7, Q in 3, R in 2, S in 2", "x=f32:1x17x23x11", 17, 8, 0},
        {"y[N,C,P,Q] +=! x[N,C,P*2+R*2,Q*2+S*2+1] where P in 9, Q in 4, R in 3, S in 2", "x=f32:1x21x21x11", 21, 8, 0},
        {"y[N,C,P,Q] >=! pad(x,-inf)[N,C,P*2+R-2,Q*3+S-1] where P in 24, Q in 7, R in 5, S in 3", "x=f32:1x23x47x20", 23, 8, 65536},
        {"y[N,C,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[C,R,S] where P in 61, Q in 7", "x=f32:1x33x61x7&w=f32:33x3x3", 33, 8, 65536}, /* bands */
    };
    static const char *const widths[] = {"x86-64-avx2", "x86-64-avx512"};
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof one / sizeof *one); i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_hw *hw = device(a, widths[i % 2]);
        int k = (int)i / 2, turned = 0;
        const char *inputs = one[k].inputs, *text = one[k].text;
        kn_program *c;
        kiln_diag d = {0};
        double *want[KILN_MAX_TENSORS] = {0};
        for (int l = 0; l < hw->nlevels; l++)
            if (one[k].l2 && !strcmp(hw->levels[l].name, "l2")) hw->levels[l].capacity_bytes = one[k].l2;
        kiln_candidates *list = constructed(a, text, inputs, hw, 20, &c);
        fresh(c, want);
        if (kn_ref_all(a, c, want, &d)) fail_msg("%s: %s", inputs, d.message);
        for (int r = 0; r < list->n; r++) {
            bool this = strstr(list->c[r].trace.p, " region last ") != NULL;
            turned += this;
            if (this || r < TOP) run_one(a, c, hw, list->c[r].trace, want, inputs);
        }
        if (turned != (one[k].at && one[k].channels >= one[k].at << i % 2)) fail_msg("%s on %s: %d candidates turn", inputs, widths[i % 2], turned);
        discard(want, c->ntensors);
        kiln_arena_close(a);
    }
}

/* What finishes a reduction by its axes alone is a table where that is short and read often. */
static void tables_are_short(void **state)
{
    static const struct { const char *text, *inputs; int tables; } one[] = {
        {"t[N,P,Q,C] +=! x[N,P+R,Q+S,C] where P in 20, Q in 30, R in 3, S in 3; "
         "y[N,P,Q,C] = t[N,P,Q,C]/((min(cast(P,f32)+2, 20)-max(cast(P,f32)-1, 0))*"
         "(min(cast(Q,f32)+2, 30)-max(cast(Q,f32)-1, 0)))", "x=f32:1x22x32x24", 2},
        {"t[N,P,Q,C] +=! x[N,P+R,Q+S,C] where P in 1, Q in 1, R in 7, S in 7; y[N,P,Q,C] = t[N,P,Q,C]/(min(cast(P,f32)+7, 7)-max(cast(P,f32)-1, 0))",
         "x=f32:1x7x7x64", 0}, /* of one element */
        {"t[H,I,J] +=! q[H,I,K]*k[H,J,K]; y[H,I,J] = t[H,I,J]+max(cast(I,f32)*2-cast(J,f32), 0)", "q=f32:12x300x16&k=f32:12x300x16", 0}, /* long */
        {"t[H,I,J] +=! q[H,I,K]*k[H,J,K]; y[H,I,J] = t[H,I,J]+max(cast(I,f32)*2-cast(J,f32), 0)", "q=f32:12x30x16&k=f32:12x30x16", 1},
        {"t[H,I,J] +=! q[H,I,K]*k[H,J,K]; y[H,I,J] = t[H,I,J]+max(cast(I,f32)*2-cast(J,f32), 0)", "q=f32:2x30x16&k=f32:2x30x16", 0}, /* twice */
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_program *c;
        int tables = 0;
        kiln_candidates *list = constructed(a, one[i].text, one[i].inputs, device(a, "x86-64-avx512"), 1, &c);
        for (const char *s = list->c[0].trace.p; (s = strstr(s, "tabulate ")); s++) tables++;
        if (tables != one[i].tables) fail_msg("%s has %d tables\n%s", one[i].inputs, tables, list->c[0].trace.p);
        kiln_arena_close(a);
    }
}

/* Constants that are large for the caches: blocks of the reduction, for a core's share of the columns or for a block of rows. The caches are made
 * small, so that a small product is a large one. */
typedef struct small_caches { const char *text, *inputs; int64_t l1, l2; const char *taken; } small_caches; /* taken: in the trace; !TEXT: not */

static void check_plan(const char *id, const small_caches *one)
{
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_hw *hw = device(a, id);
    for (int l = 0; l < hw->nlevels; l++) {
        if (!strcmp(hw->levels[l].name, "l1")) hw->levels[l].capacity_bytes = one->l1;
        if (!strcmp(hw->levels[l].name, "l2")) hw->levels[l].capacity_bytes = one->l2;
    }
    kn_program *c;
    kiln_candidates *list = constructed(a, one->text, one->inputs, hw, 1, &c);
    bool not = *one->taken == '!';
    if ((strstr(list->c[0].trace.p, one->taken + not) != NULL) == not) fail_msg("%s is planned otherwise:\n%s", one->inputs, list->c[0].trace.p);
    run_checked(a, c, hw, list->c[0].trace, one->inputs);
    kiln_arena_close(a);
}

static void check_plans(const char *id, const small_caches *all, size_t n)
{
#ifdef __SANITIZE_THREAD__
    skip(); /* nothing here has threads, and it takes too long */
#endif
    for (size_t i = 0; i < n; i++) check_plan(id, &all[i]);
}

/* Where vectors are parts of a line: windows whose copy is in layers, tiles of places of several rows. */
static void copies_in_layers(void **state)
{
#define WINDOW "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where "
    static const small_caches one[] = {
        {WINDOW "P in 6, Q in 22", "x=f32:2x32x6x22&w=f32:72x32x3x3", 8192, 65536, "transform_layout plane2 0 3/"},
        {WINDOW "P in 6, Q in 22", "x=f32:2x32x6x22&w=f32:72x32x3x3", 8192, 65536, " | S2.2 S3.1 S1.1 S1.2\n"}, /* tiles of two rows */
        {WINDOW "P in 6, Q in 22", "x=f32:2x32x6x22&w=f32:72x32x3x3:const", 8192, 65536, " S1.0 R0.0 R1.0 R2.0 R0.1 S1.1 S1.2\n"},
        {WINDOW "P in 6, Q in 10", "x=f32:2x32x6x10&w=f32:72x32x3x3", 8192, 65536, "unroll lanes_last R2.0\n"}, /* whole rows */
        {WINDOW "P in 7, Q in 13", "x=f32:1x48x7x13&w=f32:37x48x3x3", 16384, 65536, "transform_layout plane2 0 3/"}, /* ragged tiles and panels */
        {WINDOW "P in 7, Q in 13", "x=f32:1x48x7x13&w=f32:37x48x3x3:const", 16384, 65536, "transform_layout plane2 0 3/"},
        {WINDOW "P in 7, Q in 13", "x=f32:1x41x7x13&w=f32:37x41x3x3", 8192, 65536, "!3%"}, /* terms that are no whole vectors */
        {"y[N,P,Q,F] +=! pad(x,0.0)[N,2*P+R-1,2*Q+S-1,C]*w[F,C,R,S] where P in 6, Q in 7", "x=f32:2x12x13x40&w=f32:48x40x3x3", 8192, 65536,
         "transform_layout plane0 0 3/"},
        {"y[F,P,Q] +=! x[C,2*P,2*Q]*w[F,C] where P in 7, Q in 8", "x=f32:131x13x15&w=f32:403x131", 4096, 131072,
         " | S0.1 F0.1 R0.0 | "}, /* rows from afar go along all panels once */
#define LAST "y[N,P,Q,F] +=! pad(x,0.0)[N,P+R-1,Q+S-1,C]*w[R,S,C,F] where "
        {LAST "P in 12, Q in 14", "x=f32:1x12x14x32&w=f32:3x3x32x70", 8192, 65536, "scratch R2.0 loops R0.0 R1.0 R2.1 "}, /* channels last */
        {LAST "P in 12, Q in 14", "x=f32:1x12x14x32&w=f32:3x3x32x70:const", 8192, 65536, "prepack out0 0 S3.0 R2.0 R0.0 R1.0 R2.1 "},
        {LAST "P in 6, Q in 7", "x=f32:1x6x7x32&w=f32:3x3x32x96", 8192, 65536, "!3%"}, /* few places: rows of the weights lie along the lanes */
#undef LAST
        {"y[F,P] +=! x[C,P*5+R]*w[F,C,R] where P in 131", "x=f32:1x660&w=f32:66x1x10:const", 32768, 32768, "reindex out0 0 plane0\n"},
        {"y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+2*R-2,Q+2*S-2]*w[F,C,R,S] where P in 6, Q in 7", "x=f32:1x32x6x7&w=f32:44x32x3x3", 8192, 65536,
         "transform_layout plane2 0 3/"},
        {"t[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-2,Q+S-2]*w[F,C,R,S] where P in 9, Q in 6; y[N,F,P,Q] = max(t[N,F,P,Q]+b[F],0.0)",
         "x=f32:1x16x9x6&w=f32:64x16x5x5:const&b=f32:64", 16384, 65536, "transform_layout plane2 0 3/"},
    };
#undef WINDOW
    (void)state;
    check_plans("x86-64-avx2", one, sizeof one / sizeof *one);
}

/* Register tiles of windows with the channels last, where registers are few: those of more vectors than places hold the places' elements, one
 * element or vector stays free; weights of which tiles take short runs are copied for bands of many places. */
static void tiles_fill_few_registers(void **state)
{
#define LAST "y[N,P,Q,F] +=! x[N,P+R,Q+S,C]*w[R,S,C,F]"
    static const small_caches one[] = {
        {LAST, "x=f32:1x6x11x8&w=f32:3x3x8x32:const", 32768, 524288, "split out0 S3 4 8\nsplit out0 S2 3\n"},
        {LAST, "x=f32:1x6x11x8&w=f32:3x3x8x32:const", 32768, 524288, " | S3.1 S2.1 S3.2\n"},
        {LAST, "x=f32:1x6x11x8&w=f32:3x3x8x56:const", 32768, 524288, " | S3.1 S2.1 S3.2\n"}, /* seven vectors: four and three */
        {LAST, "x=f32:1x6x14x8&w=f32:3x3x8x32:const", 32768, 524288, " | S2.1 S3.1 S3.2\n"},
        {LAST, "x=f32:1x24x24x8&w=f32:3x3x8x56", 4096, 131072, "scratch S1.0 loops"},
        {LAST, "x=f32:1x24x24x8&w=f32:3x3x8x56", 65536, 131072, "! loops"}, /* L1 holds them */
        {LAST, "x=f32:1x14x9x8&w=f32:3x3x8x56", 4096, 131072, "! loops"}, /* few places */
    };
#undef LAST
    (void)state;
    check_plans("x86-64-avx2", one, sizeof one / sizeof *one);
}

/* Panels of an operand that L2 holds are copied where L1 does not hold one, and many rows meet it. */
static void far_panels_are_copied(void **state)
{
#define MM "c[M,N] +=! a[M,K]*b[K,N]"
    static const small_caches one[] = {
        {MM, "a=f32:192x100&b=f32:100x196", 8192, 262144, "cache_read out0 1 scratch"},
        {MM, "a=f32:192x100&b=f32:100x196", 49152, 262144, "!cache_read out0 1 scratch"}, /* L1 holds them */
        {MM, "a=f32:60x100&b=f32:100x196", 8192, 262144, "!cache_read out0 1 scratch"}, /* few rows */
    };
#undef MM
    (void)state;
    check_plans("x86-64-avx512", one, sizeof one / sizeof *one);
}

/* Of many products panels are copied where rows of the operand begin anywhere in lines. Rows that L2 does not hold go along panels of blocks; where
 * it may hold them, they find room beside the panels. */
static void batches_have_panels(void **state)
{
#define MM "c[B,M,N] +=! a[M,K]*b[B,K,N]"
    static const small_caches one[] = {
        {MM, "a=f32:100x120&b=f32:4x120x196", 8192, 262144, "cache_read out0 1 scratch S2.0 loops R0.0 S2.1 S2.2"},
        {MM, "a=f32:100x120&b=f32:4x120x192", 8192, 262144, "!cache_read"},
        {MM, "a=f32:300x240&b=f32:4x240x196", 8192, 262144, "cache_read out0 1 scratch S2.0 loops S2.1 R0.0 S2.2 S2.3"},
        {MM, "a=f32:200x100&b=f32:4x100x800", 8192, 131072, "split out0 S2 2 2 16"},
        {MM, "a=f32:300x100&b=f32:4x100x800", 8192, 131072, "split out0 S2 5 2 16"}, /* no room for these rows anyway */
    };
#undef MM
    (void)state;
    check_plans("x86-64-avx512", one, sizeof one / sizeof *one);
}

/* Seven panels for two cores are four and three, or five three and two: each takes all of them for half of the rows instead. */
static void cores_have_as_much(void **state)
{
#define MM "c[M,N] +=! a[M,K]*b[K,N]"
    static const small_caches one[] = {
        {MM, "a=f32:240x100&b=f32:100x336", 8192, 262144, "split out0 S1 4 3 16\nsplit out0 S0 15 8\n"},
        {MM, "a=f32:240x100&b=f32:100x384", 8192, 262144, "split out0 S1 6 2 16\nsplit out0 S0 20 12\n"}, /* six and six: all rows */
        {MM, "a=f32:144x200&b=f32:200x240", 8192, 262144, "split out0 S0 8 9\n"}, /* one panel a task */
        {MM, "a=f32:88x200&b=f32:200x240", 8192, 262144, "split out0 S0 11 8\n"}, /* packing panels twice would take as long */
        {MM, "a=f32:64x500&b=f32:500x16:const", 8192, 262144, "!split out0 R0"}, /* a panel that is alone has no blocks */
        {MM, "a=f32:64x500&b=f32:500x128:const", 8192, 262144, "split out0 R0"},
    };
    static const small_caches ways = {MM, "a=f32:520x1024&b=f32:1024x32:const", 49152, 2097152, "!lanes_last"}; /* 14 rows do not collide in 12 */
#undef MM
    (void)state;
    check_plans("x86-64-avx512", one, sizeof one / sizeof *one);
    check_plan("x86-64-amx", &ways);
}

/* What a transposed convolution without overlaps computes is finished as it is written, in the order of its results, where these have lanes that a
 * packed constant has. */
static void phases_are_epilogues(void **state)
{
#define PHASES "t[N,F,R,S,P,Q] +=! w[C,F,R,S]*x[N,P,Q,C]; y[N,P,Q,F] = max(t[N,F,P%2,Q%2,P//2,Q//2]+b[F],0.0) where P in 10, Q in 14"
    static const small_caches one[] = {
        {PHASES, "x=f32:2x5x7x12&w=f32:12x40x2x2:const&b=f32:40", 32768, 524288, "transform_layout t0 0 4 2 5 3 1\nepilogue t0\n"},
        {PHASES, "x=f32:1x5x7x9&w=f32:9x33x2x2:const&b=f32:33", 32768, 524288, "epilogue t0\n"},
        {PHASES, "x=f32:2x5x7x12&w=f32:12x40x2x2&b=f32:40", 32768, 524288, "!epilogue t0\n"},
        {PHASES, "x=f32:2x5x7x12&w=f32:12x3x2x2:const&b=f32:3", 32768, 524288, "!epilogue t0\n"}, /* no lanes */
    };
#undef PHASES
    (void)state;
    check_plans("x86-64-avx2", one, sizeof one / sizeof *one);
    check_plans("x86-64-avx512", one, sizeof one / sizeof *one);
}

/* A vector by a constant matrix, whichever way round that is stored: packed in panels, of what L2 does not hold a run for each vector of one. */
static void vectors_by_matrices(void **state)
{
#define TURNED "t[M,N] +=! a[M,K]*b[N,K]; y[M,N] = max(t[M,N]+v[N], 0.0)"
    static const small_caches one[] = {
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x31&b=f32:31x101:const", 8192, 65536, " S1.0 R0.0 S1.1 S1.2\n"},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x31&b=f32:31x101:const", 4096, 8192, " S1.0 S1.1 R0.0 S1.2\n"},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x31&b=f32:31x101", 4096, 65536, "!prepack"},
        {"c[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x31&b=f32:31x101:const", 32768, 65536, "!prepack"}, /* L1 holds it, however it lies */
        {TURNED, "a=f32:1x93&b=f32:73x93:const&v=f32:73", 8192, 65536, " S1.0 R0.0 S1.1 S1.2\n"},
        {TURNED, "a=f64:1x93&b=f64:40x93:const&v=f64:40", 8192, 16384, " S1.0 S1.1 R0.0 S1.2\n"},
        {TURNED, "a=f32:2x93&b=f32:73x93:const&v=f32:73", 8192, 65536, "| S1.1 S0.1 S1.2\n"}, /* two rows: each vector meets both */
        {"y[N,F,P,Q] +=! x[N,C,P+R,Q+S]*w[F,C,R,S] where P in 1, Q in 1", "x=f32:1x6x3x5&w=f32:70x6x3x5:const", 8192, 65536,
         " S1.0 F1.0 S1.1 S1.2\n"}, /* a window that is the whole image */
    };
#undef TURNED
    (void)state;
    check_plans("x86-64-avx2", one, sizeof one / sizeof *one);
}

/* Plans for what does not fit the caches, on a device with small ones: that they are taken, and agree with the reference. */
static void beyond_caches(void **state)
{
    static const char product[] = "c[M,N] +=! a[M,K]*b[K,N]";
    static const small_caches one[] = {
        {product, "a=f32:35x203&b=f32:203x135:const", 4096, 16384, " S1.0 R0.0 S1.1 R0.1 S1.2 S1.3\n"},
        {product, "a=f32:20x203&b=f32:203x71:const", 4096, 16384, " S1.0 R0.0 S1.1 S1.2 R0.1 S1.3\n"}, /* a few tiles of rows: streams side by side */
        {product, "a=f32:3x67&b=f32:67x259:const", 4096, 65536, " S1.0 S1.1 R0.0 S1.2\n"},
        {product, "a=f32:133x768&b=f32:768x703:const", 4096, 16384, " R0.0 S1.0 R0.1 S1.1 S1.2\ncache_read"},
        {product, "a=f32:49x33&b=f32:33x2100", 4096, 262144, "| S0.1 S1.1 R0.0 |"},
        {product, "a=f32:25x33&b=f32:33x2100", 4096, 262144, "!cache_read"}, /* met by few rows, and not much more than L2 holds */
        {product, "a=f32:211x61&b=f32:61x271", 4096, 65536, "| S0.1 S1.1 R0.0 |"}, /* long sums over many rows: panels of all terms */
        {product, "a=f32:197x307&b=f32:307x243", 4096, 131072, "| R0.0 S0.1 S1.1 R0.1 |"}, /* longer ones: of blocks */
        {product, "a=f32:517x67&b=f32:67x259:const", 4096, 131072, "| S0.1 S1.1 R0.0 |"}, /* the same of constants, packed ahead */
        {product, "a=f32:513x307&b=f32:307x163:const", 4096, 131072, "| R0.0 S0.1 S1.1 R0.1 |"},
        {"y[H,W,C] +=! pad(x,0.0)[H+R-1,W+S-1,C]*w[C,R,S] where H in 17, W in 19", "x=f32:17x19x37&w=f32:37x3x3:const", 32768, 1048576,
         "\ntransform_layout taps0 1 2 0\nahead taps0\n"}, /* depthwise: constant taps lie along the lanes */
        {"y[H,W,C] +=! pad(x,0.0)[2*H+R-1,2*W+S-1,C]*w[C,0,R,S] where H in 9, W in 10", "x=f32:18x20x40&w=f32:40x1x3x3:const", 32768, 1048576,
         "\nahead taps0\n"},
        {"y[H,W,F] +=! pad(x,0.0)[H+R-1,W+S-1,C]*w[F,C,R,S] where H in 9, W in 17", "x=f32:9x17x41&w=f32:37x41x3x3", 8192, 65536,
         "scratch R0.0 loops R0.1 R1.0 R2.0 S2.1 S2.2\n"}, /* weights beyond L2, no constant: a panel's blocks are packed one by one */
        {"y[H,W,F] +=! pad(x,0.0)[H+R-1,W+S-1,C]*w[F,C,R,S] where H in 9, W in 10", "x=f32:9x10x41&w=f32:37x41x3x3", 8192, 65536,
         "unroll out0 R2.0\n"}, /* rows of one tile: taps written out, without the columns in padding */
        {"y[H,W,F] +=! pad(x,0.0)[H+R-1,2*W+S-1,C]*w[R,S,C,F] where H in 9, W in 7", "x=f32:9x13x41&w=f32:3x3x41x37:const", 32768, 1048576,
         "unroll out0 R1.0\n"},
        {"y[H,W,F] +=! pad(x,0.0)[H+R-1,W+2*S-4,C]*w[R,S,C,F] where H in 9, W in 11", "x=f32:9x12x29&w=f32:3x4x29x64:const", 8192, 1048576,
         "unroll out0 R1.0\n"},
        {"y[F,H,W] +=! pad(x,0.0)[C,H+R-1,W+S-2]*w[F,C,R,S] where H in 8, W in 7", "x=f32:130x8x7&w=f32:48x130x3x5:const", 32768, 65536,
         "unroll turned0 R2.0\n"},
        {product, "a=f32:2x67&b=f32:67x259", 4096, 65536, "split out0 R0 8\n"}, /* a large operand streams by two rows */
        {product, "a=f32:11x67&b=f32:67x259", 4096, 65536, "| R0.0 S1.1 S0.1 R0.1 |"}, /* few rows: it is read where it lies */
        {product, "a=f32:43x67&b=f32:67x259", 4096, 65536, "| R0.0 S1.1 S0.1 R0.1 |"},
        {"c[M,N] +=! a[M,L,K]*b[K,L,N]", "a=f32:11x3x67&b=f32:67x3x259", 4096, 65536, " S1.1 S0.1 "},
        {product, "a=f32:43x67&b=f32:67x163", 4096, 65536, "!cache_read"}, /* L2 holds the operand */
        {"c[B,M,N] +=! a[B,M,K]*b[B,K,N]", "a=f32:3x43x67&b=f32:3x67x163", 4096, 65536, "!cache_read"}, /* each of many products by its own */
        {product, "a=f32:1037x32&b=f32:32x64", 4096, 131072, "scratch S0.0 loops S1.0 R0.0 "}, /* results outweigh all else */
#define SMALL_IMAGE "y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where "
        {SMALL_IMAGE "P in 5, Q in 7", "x=f32:2x32x5x7&w=f32:64x32x3x3", 8192, 65536,
         " S1.0 S2.0 | R0.0 S0.0 S2.1"}, /* each is turned once for all images */
        {SMALL_IMAGE "P in 1, Q in 1", "x=f32:1x32x1x1&w=f32:64x32x3x3", 8192, 65536, "!lanes_last"}, /* each is used once */
        {SMALL_IMAGE "P in 24, Q in 32", "x=f32:1x32x24x32&w=f32:20x32x3x3", 8192, 65536, "!lanes_last"}, /* no lane along the places is idle */
        {SMALL_IMAGE "P in 24, Q in 32", "x=f32:1x32x24x32&w=f32:16x32x3x3", 8192, 65536, "lanes_last"}, /* nor along the results: squares */
#undef SMALL_IMAGE
        {"y[H,W,C] +=! x[H+R,W+S,C]*w[R,S,C] where H in 15, W in 17", "x=f32:17x19x32&w=f32:3x3x32:const", 32768, 1048576, "prepack out0"},
        {"y[H,W,C] +=! x[H+R,W+S,C]*w[R,S,C] where H in 15, W in 17", "x=f32:17x19x37&w=f32:3x3x37:const", 32768, 1048576,
         "S1.1 R0.0 R1.0 | S0.1 S1.2"}, /* lanes past the end: nothing fills them in */
        {"y[N,H,W,C] +=! pad(x,0.0)[N,H+R-1,W+S-1,C]*w[R,S,C] where H in 15, W in 17", "x=f32:2x15x17x37&w=f32:3x3x37", 32768, 1048576,
         "S2.1 R0.0 R1.0 | S1.1 S2.2 S3.1"}, /* tiles in both directions, of which the last ones have one row */
        {"y[H,W,C] +=! pad(x,0.0)[H+R-2,W+S-2,C]*w[R,S,C] where H in 9, W in 11", "x=f32:9x11x299&w=f32:5x5x299", 32768, 1048576,
         "S2.0 | S1.1 R0.0 R1.0 | S0.1 S1.2 S2.1"}, /* what they hold of all lanes is more than L1 has: they go along the places first */
        {"y[H,W,C] +=! x[H*2+R,W*2+S,C]*w[R,S,C] where H in 7, W in 8", "x=f32:15x17x70&w=f32:3x3x70", 32768, 1048576, " | S0.1 S1.2 S2.1"},
        {"y[H,W,C] >=! pad(x,-inf)[H*2+R-1,W*2+S-1,C] where H in 9, W in 11, R in 3, S in 3", "x=f32:18x21x70", 32768, 1048576,
         " | S0.1 S1.2 S2.1"},
        {"y[H,W,C] >=! x[H*2+R,W*2+S,C] where H in 9, W in 11, R in 2, S in 2", "x=f32:18x22x70", 32768, 1048576,
         "!S0.1 S1.2"}, /* windows that do not overlap share nothing */
        {"y[H,W,F] +=! pad(x,0.0)[2*H+R-1,2*W+S-1,C]*w[F,C,R,S] where H in 16, W in 17", "x=f32:32x33x3&w=f32:21x3x3x3", 32768, 1048576,
         "scratch S0.0 loops S2.0 R1.0 R2.0 R0.0 S2.1 S2.2\n"}, /* weights that are no constant: every band of rows packs them */
        {"y[C,H,W] >=! pad(x,-inf)[C,H+R-1,W+S-1] where H in 61, W in 101, R in 3, S in 3", "x=f32:3x61x101", 32768, 1048576,
         "separate out0 R0 rows0 inside\n"}, /* rows of a window that registers hold */
        {"y[C,H,W] >=! pad(x,-inf)[C,H+R-1,W+S-1] where H in 61, W in 201, R in 3, S in 3", "x=f32:3x61x201", 32768, 1048576,
         "split out0 S1 9\n"}, /* longer ones in bands that stay in L1 */
        {"y[F,H,W] +=! pad(x,0.0)[C,H+R-1,W+S-1]*w[F,C,R,S] where H in 33, W in 19", "x=f32:2x33x19&w=f32:32x2x3x3", 4096, 65536,
         "\ncompute_at rows0 "},
        {"y[F,H,W] +=! pad(x,0.0)[C,2*H+R-1,2*W+S-1]*w[F,C,R,S] where H in 33, W in 45", "x=f32:2x66x90&w=f32:33x2x3x3", 32768, 1048576,
         "unstride out0 1 S2 plane0"}, /* rows fill vectors: strips of them */
        {"y[F,P] +=! x[C,P*5+R]*w[F,C,R] where P in 131", "x=f32:1x660&w=f32:66x1x10:const", 32768, 32768,
         "reindex out0 0 plane0\n"}, /* steps along the lanes, and results that are large: what places meet is copied */
        {"y[F,P] +=! x[C,P*3+R*2]*w[F,C,R] where P in 107", "x=f32:3x325&w=f32:65x3x3", 32768, 16384, "reindex out0 0 plane0\n"},
        {"y[F,P] +=! x[C,P+R]*w[F,C,R] where P in 131", "x=f32:1x140&w=f32:66x1x10", 32768, 32768, "!reindex"}, /* without steps */
        {"t[C] +=! x[C,H,W]; y[C] = t[C]/169.0", "x=f32:37x13x13", 4096, 16384, "unroll t0 S0.1\n"}, /* rows without gaps, finished together */
        {"y[C] +=! x[C,K]", "x=f32:37x49", 1024, 4096, "!unroll out0 S0.1\n"}, /* short ones beyond L2, with nothing behind them */
        {product, "a=f32:130x97&b=f32:97x1", 32768, 1048576, "vectorize out0 R0.2\n"},
        {product, "a=f32:130x257&b=f32:257x7", 32768, 1048576, "scratch S0.0 loops S1.0 R0.0 S1.1 R0.1\n"}, /* few columns: lanes along the sum */
        {product, "a=f32:130x257&b=f32:257x7:const", 32768, 1048576, "prepack out0"},
        {product, "a=f32:130x401&b=f32:401x11", 32768, 1048576, "scratch S0.0 loops S1.0 R0.0 S1.1 R0.1\n"}, /* more of them, of long sums */
        {"c[M,N] +=! a[M,K]*b[N,K]", "a=f32:19x261&b=f32:7x261", 32768, 1048576, "vectorize out0 R0.1\n"}, /* which lie along it as they are */
        {"c[M,N] +=! a[M,K]*b[N,K]", "a=f32:19x261&b=f32:7x261", 32768, 1048576, "!cache_read"},
        {"c[M,N] +=! a[M,K]*b[N,K]", "a=f32:19x261&b=f32:7x261:const", 32768, 1048576, "vectorize out0 R0.1\n"},
        {product, "a=f32:131x75&b=f32:75x8", 32768, 1048576, "vectorize out0 S1.2\n"}, /* short ones: lanes along the columns */
        {product, "a=f32:3x40&b=f32:40x9", 32768, 1048576, "rfactor out0 R0.1\n"}, /* few results: several sums of each */
        {product, "a=f32:2x51&b=f32:51x29:const", 32768, 1048576, "split out0 R0 3\n"},
        {product, "a=f32:1x64&b=f32:64x33", 32768, 1048576, "rfactor out0 R0.1\n"},
        {product, "a=f32:33x200&b=f32:200x2", 32768, 1048576, "vectorize out0 R0.1\n"}, /* fewer rows of fewer columns */
        {product, "a=f32:21x131&b=f32:131x7", 32768, 1048576, "!vectorize out0 R0.1\n"},
        {product, "a=f32:21x131&b=f32:131x7:const", 32768, 1048576, "vectorize out0 R0.1\n"},
        {product, "a=bf16:37x85&b=bf16:85x1", 32768, 1048576, "widen out0 1 wide0"}, /* a vector that all rows meet */
        {"c[M] +=! cast(a[M,K],i32)*cast(b[K],i32)", "a=i8:37x85&b=u8:85", 32768, 1048576, "widen out0 0 wide0"},
        {product, "a=f16:130x85&b=f16:85x5", 32768, 1048576, "widen out0 0 wide0"}, /* halves become floats */
        {product, "a=bf16:130x85&b=bf16:85x3:const", 32768, 1048576, "vectorize out0 R0.1\n"},
        {product, "a=f32:70x3&b=f32:3x211:const", 32768, 1048576, "!prepack"}, /* a few terms: constants are as good as they lie */
        {"y[F,H,W] +=! x[C,H+R,W+S]*w[F,C,R,S] where H in 33, W in 45", "x=f32:2x37x47&w=f32:33x2x5x3", 32768, 1048576,
         "reorder out0 S1.0 | S0.0 S1.1 S2.0 "},
        {"y[F,H,W] +=! x[C,H+R,W+S]*w[F,C,R,S] where H in 5, W in 45", "x=f32:40x7x47&w=f32:33x40x3x3", 32768, 1048576,
         "flatten_window"}, /* sums so long that moving the results does not show */
    };
    (void)state;
    check_plans("x86-64-avx512", one, sizeof one / sizeof *one);
}

/* Equal data along one axis: what is summed there must be equal to the bit, so every tile adds its terms in one order, the last ones too. Each input
 * is the same along `along[i]` (-1: it has no such axis), the output along `out`. */
static const struct { const char *text, *inputs; int along[2], out; } alike[] = {
    {"t[C] +=! x[N,C,H,W]; y[C] = t[C]/169.0", "x=f32:1x131x13x13", {1}, 0},
    {"t[N,C] +=! x[N,C,H,W]; y[N,C] = t[N,C]/35.0", "x=f32:2x131x5x7", {1}, 1},
    {"t[N,C] +=! x[N,H,W,C]; y[N,C] = t[N,C]/35.0", "x=f32:2x5x7x131", {3}, 1},
    {"t[N,C] +=! x[N,H,W,C]; y[N,C] = t[N,C]/65.0", "x=f32:1x5x13x131", {3}, 1},
    {"y[C] +=! x[C,K]", "x=f32:131x169", {0}, 0},
    {"y[C] +=! x[C,K]", "x=f32:127x7", {0}, 0},
    {"y[C] +=! x[C,K]", "x=f32:13x331", {0}, 0},
    {"y[C] +=! x[K,C]", "x=f32:57x131", {1}, 0},
    {"y[C] +=! x[K,C]", "x=f32:57x13", {1}, 0},
    {"y[C] +=! x[K,C]", "x=f32:203x37", {1}, 0},
    {"y[N,C] +=! x[N,K,C]", "x=f32:3x57x127", {2}, 1},
    {"y[N,C] +=! x[N,K,C]", "x=f32:7x57x127", {0}, 0},
    {"y[N,C] +=! x[N,K,C]", "x=f32:131x19x3", {0}, 0},
    {"y[C] +=! x[N,C,H,W]", "x=f32:5x131x3x3", {1}, 0},
    {"y[N,C,P] +=! pad(x,0.0)[N,C,P*2+R-1,S] where P in 7, R in 3", "x=f32:1x131x13x5", {1}, 1},
    {"y[M,N] +=! a[M,K]*b[K,N]", "a=f32:37x29&b=f32:29x37", {0, -1}, 0},
    {"y[M,N] +=! a[M,K]*b[K,N]", "a=f32:13x29&b=f32:29x131", {-1, 1}, 1},
    {"y[M,N] +=! a[M,K]*b[N,K]", "a=f32:7x97&b=f32:131x97", {-1, 0}, 1},
    {"y[M,N] +=! a[M,K]*b[N,K]", "a=f32:1x97&b=f32:131x97", {-1, 0}, 1},
    {"y[M,N] +=! a[M,K]*b[K,N]", "a=f32:1x97&b=f32:97x131", {-1, 1}, 1},
    {"y[N,F,P,Q] +=! pad(x,0.0)[N,C,P+R-1,Q+S-1]*w[F,C,R,S] where P in 5, Q in 7", "x=f32:1x5x5x7&w=f32:37x5x3x3", {-1, 0}, 1},
    {"y[N,F,P,Q] +=! x[N,C,P,Q]*w[F,C]", "x=f32:1x67x5x5&w=f32:37x67", {-1, 0}, 1},
};
enum { NALIKE = sizeof alike / sizeof alike[0], CANDIDATES = 2 };
static const char *const processors[] = {"x86-64-avx2", "x86-64-avx512"};

static double **alike_data(const kn_program *p, const int *of, const int *along)
{
    double **x = calloc(KILN_MAX_TENSORS, sizeof *x);
    for (int t = 0; t < p->ntensors; t++) {
        x[t] = calloc((size_t)elems_of(&p->tensors[t]), sizeof(double));
        int64_t inner = 1;
        for (int i = t < p->ninputs ? along[of[t]] + 1 : 0; i < p->tensors[t].rank; i++) inner *= p->tensors[t].shape[i];
        int64_t n = t < p->ninputs && along[of[t]] >= 0 ? p->tensors[t].shape[along[of[t]]] : 1;
        for (int64_t k = 0; k < elems_of(&p->tensors[t]) && t < p->ninputs; k++) {
            int64_t at = k / inner / n * inner + k % inner;
            x[t][k] = (float)(1 + (double)((at * 7919 + t * 11) % 1009) / 1009);
        }
    }
    return x;
}

static void summed_alike(kiln_arena *a, const kn_program *p, const kn_hw *hw, kiln_bytes trace, const int *of, int i, const char *what)
{
    kn_tree *t;
    kn_lprog *l;
    kiln_diag d = {0};
    if (kn_trace_apply(a, p, hw, trace, &t, &d) || kn_lower(a, t, hw, &l, &d)) fail_msg("%s: %s\n%s", what, d.message, trace.p);
    double **x = alike_data(p, of, alike[i].along);
    const char *bad = lprog_eval(l, x);
    if (bad) fail_msg("%s: %s\n%s", what, bad, trace.p);
    const kn_tensor *y = &p->tensors[p->ninputs];
    int64_t inner = 1, n = y->shape[alike[i].out];
    for (int k = alike[i].out + 1; k < y->rank; k++) inner *= y->shape[k];
    for (int64_t k = 0; k < elems_of(y); k++) {
        int64_t first = k / (inner * n) * inner * n + k % inner;
        double got = x[p->ninputs][k], same = x[p->ninputs][first];
        if (got != same) fail_msg("%s: element %lld is %.9g, and %.9g at %lld\n%s", what, (long long)k, got, same,
                                  (long long)first, trace.p);
    }
    for (int k = 0; k < p->ntensors; k++) free(x[k]);
    free(x);
}

static void places_are_summed_alike(void **state)
{
#ifdef __SANITIZE_THREAD__
    skip();
#endif
    (void)state;
    for (int i = 0; i < NALIKE; i++) {
        for (size_t h = 0; h < sizeof processors / sizeof *processors; h++) {
            kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            kn_hw *hw = device(a, processors[h]);
            kn_program *p = NULL, *c = NULL;
            int in[KILN_MAX_TENSORS], out[KILN_MAX_TENSORS];
            kiln_diag d = {0};
            kiln_candidates *list = NULL;
            kiln_bytes text = {alike[i].text, strlen(alike[i].text)}, inputs = {alike[i].inputs, strlen(alike[i].inputs)};
            if (kn_parse(a, text, inputs, &p, &d) || kn_canon(a, p, &c, in, out, &d) ||
                kn_policy_find("default")->construct(a, c, hw, CANDIDATES, &list, &d)) fail_msg("%s: %s", alike[i].text, d.message);
            for (int r = 0; r < list->n; r++) {
                char what[256];
                snprintf(what, sizeof what, "%s of %s on %s, candidate %d", alike[i].text, alike[i].inputs, processors[h], r);
                summed_alike(a, c, hw, list->c[r].trace, in, i, what);
            }
            kiln_arena_close(a);
        }
    }
}

/* Terms that are added to a register. */
static int64_t terms_of(const kn_lprog *l, const kn_ls *s, int64_t with)
{
    return stores_in_registers(l, s, with) && s->value->op != KN_OP_SPLAT;
}

/* Sums up to each place of a block are written out for all of them, with the terms that count alone. */
static void sums_run_on(void **state)
{
    static const struct { const char *text, *inputs; int terms; } one[] = {
        {"y[S,C] +=! select(I <= S%16, x[S//16*16+I,C], 0.0) where S in 48, I in 16", "x=f32:48x19", 16 * 17 / 2},
        {"y[S,C] +=! select(I <= S%8, pad(x,0.0)[S//8*8+I,C], 0.0) where S in 43, I in 8", "x=f32:43x24", 8 * 9 / 2 + 3 * 4 / 2},
        {"y[B,S,C] +=! select(I < S%4, x[B,S//4*4+I,C], 0.0) where S in 20, I in 4", "x=f32:3x20x33", 4 * 3 / 2},
        {"y[S,C] +=! select(I < S, x[I,C], 0.0) where S in 12", "x=f32:12x40", 12 * 11 / 2},
        {"y[S,C] +=! select(S <= I, cast(x[I,C],f32), 0.0) where S in 9", "x=f16:9x16", 9 * 10 / 2},
        {"y[S,C] +=! select(I <= S%16, x[S//16*16+I,C], 0) where S in 32, I in 16", "x=i32:32x16", 16 * 17 / 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        for (int k = 0; k < 2; k++) {
            kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            kn_hw *hw = device(a, k ? "x86-64-avx512" : "x86-64-avx2");
            kn_program *c;
            kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace;
            kn_lprog *l = lowered(a, c, hw, trace, one[i].text);
            int terms = (int)counted(l, terms_of, 0);
            if (!terms || terms > one[i].terms) fail_msg("%s: %d terms, not %d\n%s", one[i].text, terms, one[i].terms, trace.p);
            run_checked(a, c, hw, trace, one[i].text);
            kiln_arena_close(a);
        }
    }
}

/* Along the lanes all places of a block are whole vectors, to which every term is added where it counts: no sum of lanes for each place, nor planes
 * turned. Ragged rows are filled in, whatever their size. */
static void sums_run_along(void **state)
{
    static const struct { const char *text, *inputs; bool runs; } one[] = {
        {"y[B,S] +=! select(I <= S%8, x[B,S//8*8+I], 0.0) where S in 48, I in 8", "x=f32:70x48", true},
        {"y[B,S] +=! select(I < S%16, x[B,S//16*16+I], 0.0) where S in 64, I in 16", "x=f32:70x64", true},
        {"y[B,S] +=! select(I <= S, x[B,I], 0.0) where S in 16", "x=f32:70x16", true},
        {"y[B,S] +=! select(I <= S%8, pad(x,0.0)[B,S//8*8+I], 0.0) where S in 43, I in 8", "x=f32:5x43", true},
        {"y[B,S] +=! select(I <= S%8, pad(x,0.0)[B,S//8*8+I], 0.0) where S in 1003, I in 8", "x=f32:999x1003", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        for (int k = 0; k < 2; k++) {
            kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
            kn_hw *hw = device(a, k ? "x86-64-avx512" : "x86-64-avx2");
            kn_program *c;
            kiln_bytes trace = constructed(a, one[i].text, one[i].inputs, hw, 1, &c)->c[0].trace;
            bool padded = strstr(one[i].text, "pad") != NULL, filled = strstr(trace.p, "decompose_padding") != NULL;
            if (strstr(trace.p, "rfactor") || strstr(trace.p, "reindex") || !strstr(trace.p, "unroll out0 R0.0") || filled != padded)
                fail_msg("%s of %s on %s:\n%s", one[i].text, one[i].inputs, hw->id, trace.p);
            if (one[i].runs) run_checked(a, c, hw, trace, one[i].text);
            kiln_arena_close(a);
        }
    }
}

/* What shares out the gradient of a window's maxima compares several padded tensors at once, of which no row is held: they are filled in, whatever
 * their size. Maxima that several statements read are not turned to have the channels last. */
static void maxima_are_shared_out(void **state)
{
#define BACK "y[N,C,P,Q] +=! select(x[N,C,P,Q] == pad(t,0.0)[N,C,P-R+1,Q-S+1], pad(g,0.0)[N,C,P-R+1,Q-S+1], 0.0) " \
             "where R in 3, S in 3"
    static const struct { const char *text, *inputs, *has, *has_not; } one[] = {
        {"t[N,C,P,Q] >=! pad(x,-inf)[N,C,P+R-1,Q+S-1] where P in 56, Q in 56, R in 3, S in 3; "
         "u[N,C,P,Q] +=! select(pad(x,-inf)[N,C,P+R-1,Q+S-1] == t[N,C,P,Q], 1.0, 0.0) where R in 3, S in 3; "
         "g[N,C,P,Q] = i[N,C,P,Q]/u[N,C,P,Q]; " BACK,
         "x=f32:2x64x56x56&i=f32:2x64x56x56", "decompose_padding out0", "as written"},
        {"t[N,C,P,Q] >=! x[N,C,P*3+R,Q*3+S] where P in 18, Q in 18, R in 3, S in 3; "
         "u[N,C,P,Q] +=! select(x[N,C,P*3+R,Q*3+S] == t[N,C,P,Q], 1.0, 0.0) where R in 3, S in 3; y[N,C,P,Q] = t[N,C,P,Q]/u[N,C,P,Q]",
         "x=f32:2x64x56x56", "vectorize", "lanes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++) {
        kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
        kn_program *c;
        const char *trace = constructed(a, one[i].text, one[i].inputs, device(a, "x86-64-avx2"), 1, &c)->c[0].trace.p;
        if (!strstr(trace, one[i].has) || strstr(trace, one[i].has_not)) fail_msg("%s:\n%s", one[i].text, trace);
        kiln_arena_close(a);
    }
#undef BACK
}

/* A few long rows: their runs are the tasks, as many as keep the cores busy, and not every few vectors of a row. */
static void few_rows_go_in_runs(void **state)
{
    (void)state;
    kiln_arena *a = kiln_arena_open(&(kiln_host){NULL, mem, NULL});
    kn_program *c;
    int run = 0, lanes = 0;
    const char *trace = constructed(a, "y[M,N] = x[M,N]+z[M]", "x=f32:7x46189&z=f32:7", device(a, "x86-64-avx2"), 1, &c)->c[0].trace.p;
    if (sscanf(trace, "split out0 S1 %d %d", &run, &lanes) != 2 || run < 256) fail_msg("%s", trace);
    kiln_arena_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(candidates_run), cmocka_unit_test(rows_are_one_region), cmocka_unit_test(planes_are_lanes),
        cmocka_unit_test(tables_are_short), cmocka_unit_test(beyond_caches), cmocka_unit_test(copies_in_layers),
        cmocka_unit_test(far_panels_are_copied), cmocka_unit_test(batches_have_panels), cmocka_unit_test(cores_have_as_much),
        cmocka_unit_test(phases_are_epilogues), cmocka_unit_test(vectors_by_matrices), cmocka_unit_test(tiles_fill_few_registers),
        cmocka_unit_test(places_are_summed_alike), cmocka_unit_test(sums_run_on), 
        cmocka_unit_test(sums_run_along), cmocka_unit_test(maxima_are_shared_out), cmocka_unit_test(few_rows_go_in_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
