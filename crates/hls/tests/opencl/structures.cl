/* Structures within structures, also packed, with vectors and arrays. */
typedef struct { int a; short b; } pair;
typedef struct { char name[3]; pair first; pair more[2]; } outer;
typedef struct __attribute__((packed)) { char a; float4 b; short3 c; uchar16 d; } packed;
typedef struct __attribute__((packed)) { char name[3]; packed p; outer o; } mixed;

/* An element of a structure's first member: only the size of the structure is in the address. */
kernel void fill(global outer *o, global mixed *m)
{
    int i = get_global_id(0);
    o[i].name[0] = (char)i;
    o[i].first.b = (short)(100 + i);
    o[i].more[i & 1].a = 1000 + i;
    m[i].name[1] = (char)-i;
    m[i].p.b = (float4)(i, 1, 2, 3);
    m[i].p.d.s7 = (uchar)(i * 3);
    m[i].o = o[i];
}

/* The same in private and local memory. */
kernel void pass(global const mixed *m, global float *out, int n)
{
    local mixed near;
    private mixed own[2];
    int i = get_global_id(0);
    own[i & 1] = m[i];
    own[~i & 1].p.b = own[i & 1].p.b * 2.0f;
    if (get_local_id(0) == 0) near = own[i & 1];
    barrier(CLK_LOCAL_MEM_FENCE);
    out[i] = own[(i + n) & 1].p.b.s0 + near.o.more[0].a + near.p.d.s7 + own[i & 1].name[1];
}
