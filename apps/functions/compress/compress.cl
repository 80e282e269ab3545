/* gzip (RFC 1952) of independent deflate blocks (RFC 1951), in three kernels. */
#define BLOCK 32768
#define SLOT (BLOCK + 16)
#define TABLE_BITS 12
#define POLYNOMIAL 0xedb88320u

/* RFC 1951, 3.2.5: the minimum length and distance of each code;
 * the extra bits follow from them. */
constant ushort LENGTHS[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11, 13,  15,  17,  19,  23, 27,
                               31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
constant uchar LENGTH_BITS[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constant ushort DISTANCES[30] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
                                 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};

/* The checksum of four bits. */
constant uint NIBBLES[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
                             0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};

struct writer {
  global uchar *to;
  uint at;      /* bytes written */
  ulong pending; /* bits of an incomplete byte, the first one lowest */
  uint bits;
};

/* Appends the lowest bits of a value, lowest first. A slot has space for all that is written before
 * the block is abandoned. */
static void put(struct writer *w, uint value, uint bits) {
  w->pending |= (ulong)value << w->bits;
  w->bits += bits;
  while (w->bits >= 8) {
    w->to[w->at++] = (uchar)w->pending;
    w->pending >>= 8;
    w->bits -= 8;
  }
}

/* Huffman codes are written highest bit first. */
static void put_code(struct writer *w, uint code, uint bits) {
  uint reversed = 0;
  for (uint i = 0; i < bits; i++) reversed |= (code >> i & 1) << (bits - 1 - i);
  put(w, reversed, bits);
}

/* RFC 1951, 3.2.6: the fixed code. */
static void put_symbol(struct writer *w, uint symbol) {
  if (symbol < 144)
    put_code(w, 0x30 + symbol, 8);
  else if (symbol < 256)
    put_code(w, 0x190 + symbol - 144, 9);
  else if (symbol < 280)
    put_code(w, symbol - 256, 7);
  else
    put_code(w, 0xc0 + symbol - 280, 8);
}

static void put_match(struct writer *w, uint length, uint distance) {
  uint code = 28;
  while (LENGTHS[code] > length) code--;
  put_symbol(w, 257 + code);
  put(w, length - LENGTHS[code], LENGTH_BITS[code]);
  code = 29;
  while (DISTANCES[code] > distance) code--;
  put_code(w, code, 5);
  put(w, distance - DISTANCES[code], code < 2 ? 0 : code / 2 - 1);
}

static uint hash(global const uchar *p) {
  return ((uint)p[0] | (uint)p[1] << 8 | (uint)p[2] << 16) * 2654435761u >> (32 - TABLE_BITS);
}

/* One block per work-item, into a slot of its own: compressed, followed by an empty stored block to
 * end at a byte; or stored. */
kernel void deflate(global const uchar *restrict data, global ushort *restrict tables, global uchar *restrict slots,
                    global uint *restrict sizes, global uint *restrict checks, ulong length) {
  ulong item = get_global_id(0);
  global const uchar *in = data + item * BLOCK;
  uint size = length - item * BLOCK < BLOCK ? (uint)(length - item * BLOCK) : BLOCK;
  global ushort *table = tables + (item << TABLE_BITS);
  for (uint i = 0; i < 1 << TABLE_BITS; i++) table[i] = 0;

  struct writer w = {slots + item * SLOT, 0, 0, 0};
  put(&w, 2, 3);
  uint i = 0;
  /* Ten bytes more than the limit of the loop: one match, the end of the block,
   * and the empty block. */
  while (i < size && w.at < size) {
    uint found = 0, distance = 0;
    if (i + 3 <= size) {
      uint slot = hash(in + i), seen = table[slot];
      table[slot] = (ushort)(i + 1);
      if (seen) {
        uint most = size - i < 258 ? size - i : 258;
        distance = i - (seen - 1);
        while (found < most && in[i + found] == in[seen - 1 + found]) found++;
      }
    }
    if (found < 3) {
      put_symbol(&w, in[i++]);
      continue;
    }
    put_match(&w, found, distance);
    for (uint end = i + found, next = i + 1; next < end && next + 3 <= size; next++) table[hash(in + next)] = (ushort)(next + 1);
    i += found;
  }
  put_symbol(&w, 256);
  put(&w, 0, 3);
  put(&w, 0, (8 - w.bits) & 7);
  put(&w, 0, 16);
  put(&w, 0xffff, 16);

  if (i < size || w.at > size + 5) {
    w.at = 0;
    put(&w, 0, 8);
    put(&w, size, 16);
    put(&w, ~size & 0xffff, 16);
    for (uint k = 0; k < size; k++) w.to[w.at++] = in[k];
  }
  sizes[item] = w.at;

  uint check = 0xffffffff;
  for (uint k = 0; k < size; k++) {
    check ^= in[k];
    check = check >> 4 ^ NIBBLES[check & 15];
    check = check >> 4 ^ NIBBLES[check & 15];
  }
  checks[item] = ~check;
}

/* The product of a and b modulo the checksum's polynomial; bit 31 is x^0. */
static uint multiply(uint a, uint b) {
  uint product = 0;
  for (uint bit = 1u << 31; bit; bit >>= 1) {
    if (a & bit) product ^= b;
    b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
  }
  return product;
}

/* The factor that `bytes` more bytes contribute to a checksum: x^(8 bytes). */
static uint shift_of(ulong bytes) {
  uint power = 1u << 30, shift = 1u << 31;
  for (ulong n = bytes * 8; n; n >>= 1) {
    if (n & 1) shift = multiply(power, shift);
    power = multiply(power, power);
  }
  return shift;
}

/* One work-item: computes the positions of the blocks, writes the file's header and trailer. */
kernel void assemble(global const uint *restrict sizes, global const uint *restrict checks, global ulong *restrict offsets,
                     global uchar *restrict file, global ulong *restrict written, ulong length) {
  ulong blocks = (length + BLOCK - 1) / BLOCK, at = 10;
  uint check = 0, whole = shift_of(BLOCK);
  for (ulong i = 0; i < blocks; i++) {
    offsets[i] = at;
    at += sizes[i];
    ulong rest = length - i * BLOCK;
    check = multiply(rest < BLOCK ? shift_of(rest) : whole, check) ^ checks[i];
  }
  file[0] = 0x1f, file[1] = 0x8b, file[2] = 8;
  for (int i = 3; i < 9; i++) file[i] = 0;
  file[9] = 255;
  /* An empty last block. */
  file[at++] = 3, file[at++] = 0;
  for (int i = 0; i < 4; i++) file[at++] = (uchar)(check >> 8 * i);
  for (int i = 0; i < 4; i++) file[at++] = (uchar)(length >> 8 * i);
  *written = at;
}

/* One block per work-item, copied to its position. */
kernel void gather(global const uchar *restrict slots, global const uint *restrict sizes, global const ulong *restrict offsets,
                   global uchar *restrict file) {
  ulong item = get_global_id(0);
  global const uchar *from = slots + item * SLOT;
  global uchar *to = file + offsets[item];
  for (uint i = 0; i < sizes[item]; i++) to[i] = from[i];
}
