/* Runs kernels of Xilinx images (xclbin), which it writes by the format in XRT's xclbin.h: one
   compute unit of a kernel with two buffers and a number. Prints the result of each call.

     run NAME...   loads the image of each kernel in order, and runs it
     hold NAME     loads it, runs it, and keeps it until a signal
     damaged WAY   loads an image without its magic bytes (magic), or creates a kernel that the
                   image does not have (kernel)
     units         loads an image, and creates kernels of named compute units
     source        builds a program from source, which needs a compiler
     write NAME FILE  writes the image of a kernel to a file
     several       two images at once in one context */
#define _POSIX_C_SOURCE 200809L
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 1024, SECTIONS = 5, HEADER = 304, SECTION = 40, START = 656, IMAGE_MAX = 16384 };

/* Section kinds of xclbin.h. */
enum { BITSTREAM = 0, EMBEDDED_METADATA = 2, MEM_TOPOLOGY = 6, CONNECTIVITY = 7, IP_LAYOUT = 8 };

struct image {
  unsigned char bytes[IMAGE_MAX];
  size_t size;
  int sections;
};

static void put(struct image *image, size_t at, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    image->bytes[at + i] = (unsigned char)(value >> (8 * i));
  }
}

/* struct axlf_section_header: kind, name[16], offset, size; the data follow all headers. */
static void add(struct image *image, int kind, const void *data, size_t size) {
  size_t at = HEADER + 152 + SECTION * (size_t)image->sections++;
  put(image, at, (uint64_t)kind, 4);
  snprintf((char *)image->bytes + at + 4, 16, "section%d", kind);
  put(image, at + 24, image->size, 8);
  put(image, at + 32, size, 8);
  memcpy(image->bytes + image->size, data, size);
  image->size += (size + 7) / 8 * 8;
}

static void metadata(char *text, size_t size, const char *kernel) {
  snprintf(text, size,
           "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
           "<project name=\"%s\"><platform vendor=\"xilinx\" boardid=\"noop\" name=\"noop\" "
           "featureRomTime=\"0\"><version major=\"0\" minor=\"0\"/>"
           "<device name=\"fpga0\" fpgaDevice=\"noop\" addrWidth=\"0\">"
           "<core name=\"OCL_REGION_0\" target=\"hw\" type=\"clc_region\" clockFreq=\"0MHz\" "
           "numComputeUnits=\"60\"><kernel name=\"%s\" language=\"c\" vlnv=\"x\" attributes=\"\" "
           "hash=\"\" preferredWorkGroupSizeMultiple=\"0\" workGroupSize=\"1\" interrupt=\"true\" "
           "hwControlProtocol=\"ap_ctrl_hs\"><module name=\"%s\"/>"
           "<port name=\"GMEM\" mode=\"master\" range=\"0xFFFFFFFF\" dataWidth=\"32\" "
           "portType=\"addressable\" base=\"0x0\"/>"
           "<port name=\"CONTROL\" mode=\"slave\" range=\"0x1000\" dataWidth=\"32\" "
           "portType=\"addressable\" base=\"0x0\"/>"
           "<arg name=\"in\" addressQualifier=\"1\" id=\"0\" port=\"GMEM\" size=\"0x8\" "
           "offset=\"0x10\" hostOffset=\"0x0\" hostSize=\"0x8\" type=\"int*\"/>"
           "<arg name=\"out\" addressQualifier=\"1\" id=\"1\" port=\"GMEM\" size=\"0x8\" "
           "offset=\"0x1C\" hostOffset=\"0x0\" hostSize=\"0x8\" type=\"int*\"/>"
           "<arg name=\"n\" addressQualifier=\"0\" id=\"2\" port=\"CONTROL\" size=\"0x4\" "
           "offset=\"0x28\" hostOffset=\"0x0\" hostSize=\"0x4\" type=\"int\"/>"
           "<instance name=\"%s_1\"><addrRemap base=\"0x10000\" range=\"0x10000\" "
           "port=\"CONTROL\"/></instance></kernel></core></device></platform></project>\n",
           kernel, kernel, kernel, kernel);
}

static void write_image(struct image *image, const char *kernel) {
  memset(image, 0, sizeof *image);
  image->size = START;
  unsigned char bits[4096] = {0};
  snprintf((char *)bits, sizeof bits, "%s", kernel);
  add(image, BITSTREAM, bits, sizeof bits);
  char xml[4096];
  metadata(xml, sizeof xml, kernel);
  add(image, EMBEDDED_METADATA, xml, strlen(xml));
  /* struct mem_topology: one bank of 1 GiB (the size is in KiB). */
  unsigned char memory[48] = {1, [8] = 1, [9] = 1, [18] = 0x10};
  memcpy(memory + 32, "bank0", 5);
  add(image, MEM_TOPOLOGY, memory, sizeof memory);
  /* struct ip_layout: one kernel instance at 0x10000. */
  unsigned char layout[88] = {1, [8] = 1, [18] = 1};
  snprintf((char *)layout + 24, 64, "%s:%s_1", kernel, kernel);
  add(image, IP_LAYOUT, layout, sizeof layout);
  /* struct connectivity: arguments 0 and 1 of instance 0 to bank 0. */
  const int32_t connections[7] = {2, 0, 0, 0, 1, 0, 0};
  add(image, CONNECTIVITY, connections, sizeof connections);
  memcpy(image->bytes, "xclbin2", 8);
  memset(image->bytes + 8, 0xff, 32); /* no signature */
  put(image, HEADER - 8, 1, 8);
  put(image, HEADER, image->size, 8);
  image->bytes[HEADER + 26] = 2; /* version 2.1 */
  image->bytes[HEADER + 27] = 1;
  memcpy(image->bytes + HEADER + 48, "xilinx_noop", 11);
  snprintf((char *)image->bytes + HEADER + 112, 16, "id of %s", kernel);
  put(image, HEADER + 144, SECTIONS, 4);
}

static cl_context context;
static cl_device_id device;

static cl_program load(const unsigned char *bytes, size_t size, const char *name) {
  cl_int status = 0, code;
  cl_program program = clCreateProgramWithBinary(context, 1, &device, &size, &bytes, &status, &code);
  printf("%s: program %d\n", name, code);
  if (code) {
    return NULL;
  }
  printf("%s: status %d\n", name, status);
  printf("%s: build %d\n", name, clBuildProgram(program, 1, &device, "", NULL, NULL));
  return program;
}

static cl_program load_image(const char *name) {
  struct image *image = malloc(sizeof *image);
  write_image(image, name);
  cl_program program = load(image->bytes, image->size, name);
  free(image);
  return program;
}

static void run(cl_program program, const char *name) {
  cl_int code;
  /* Of its own: XRT loads no other image while a kernel exists, and Baltra's queues keep kernels. */
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
  printf("%s: queue %d\n", name, code);
  cl_kernel kernel = clCreateKernel(program, name, &code);
  printf("%s: kernel %d\n", name, code);
  if (code) {
    return;
  }
  cl_uint arguments = 0;
  clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, NULL);
  printf("%s: arguments %u\n", name, arguments);
  cl_mem buffers[2];
  for (cl_uint i = 0; i < 2; i++) {
    buffers[i] = clCreateBuffer(context, CL_MEM_READ_WRITE, WORDS * 4, NULL, &code);
    printf("%s: buffer %d\n", name, code);
    printf("%s: argument %d\n", name, clSetKernelArg(kernel, i, sizeof buffers[i], &buffers[i]));
  }
  cl_int number = 16;
  printf("%s: argument %d\n", name, clSetKernelArg(kernel, 2, sizeof number, &number));
  int words[WORDS];
  for (int i = 0; i < WORDS; i++) {
    words[i] = 3 * i + 1;
  }
  printf("%s: write %d\n", name,
         clEnqueueWriteBuffer(queue, buffers[0], CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
  memset(words, 0, sizeof words);
  printf("%s: read %d\n", name,
         clEnqueueReadBuffer(queue, buffers[0], CL_TRUE, 0, sizeof words, words, 0, NULL, NULL));
  printf("%s: words %d %d\n", name, words[1], words[WORDS - 1]);
  for (int i = 0; i < 20; i++) {
    cl_event event;
    cl_int task = clEnqueueTask(queue, kernel, 0, NULL, &event);
    cl_int ended = task ? task : clWaitForEvents(1, &event);
    cl_int status = 1;
    if (!task) {
      clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, NULL);
      clReleaseEvent(event);
    }
    if (task || ended || status) {
      printf("%s: task %d %d %d\n", name, task, ended, status);
      break;
    }
  }
  size_t one = 1;
  printf("%s: range %d\n", name,
         clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL));
  printf("%s: finish %d\n", name, clFinish(queue));
  clReleaseMemObject(buffers[0]);
  clReleaseMemObject(buffers[1]);
  clReleaseKernel(kernel);
  clReleaseCommandQueue(queue);
}

/* An image that is damaged in one way, or a kernel that is not in it. */
static void damaged(const char *way) {
  static struct image image;
  write_image(&image, "one");
  if (!strcmp(way, "magic")) {
    image.bytes[0] = 'X';
    load(image.bytes, image.size, way);
  } else if (!strcmp(way, "kernel")) {
    cl_program program = load_image("one");
    cl_int code;
    clCreateKernel(program, "missing", &code);
    printf("missing kernel: %d\n", code);
  }
}

/* Kernels of a compute unit that exists, and of one that does not. */
static void units(void) {
  cl_program program = load_image("one");
  const char *names[] = {"one:{one_1}", "one:{one_2}", "one:{"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    cl_int code;
    cl_kernel kernel = clCreateKernel(program, names[i], &code);
    printf("%s: kernel %d\n", names[i], code);
    if (!code) {
      char name[64] = "";
      clGetKernelInfo(kernel, CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL);
      printf("%s: name %s\n", names[i], name);
      clReleaseKernel(kernel);
    }
  }
}

static void build_source(void) {
  const char *text = "kernel void one(global int *a) { a[0] = 1; }";
  cl_int code;
  cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &code);
  printf("source: program %d\n", code);
  if (!code) {
    printf("source: build %d\n", clBuildProgram(program, 1, &device, "", NULL, NULL));
  }
}

static int write_file(const char *kernel, const char *path) {
  static struct image image;
  write_image(&image, kernel);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(image.bytes, 1, image.size, file) != image.size || fclose(file)) {
    perror(path);
    return 1;
  }
  return 0;
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  if (argc == 4 && !strcmp(argv[1], "write")) {
    return write_file(argv[2], argv[3]);
  }
  cl_platform_id platform;
  cl_int code = clGetPlatformIDs(1, &platform, NULL);
  code = code ? code : clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL);
  if (code || argc < 2) {
    fprintf(stderr, "no device (%d), or no mode\n", code);
    return 1;
  }
  char profile[64] = "";
  clGetDeviceInfo(device, CL_DEVICE_PROFILE, sizeof profile, profile, NULL);
  cl_bool compiles = CL_TRUE;
  clGetDeviceInfo(device, CL_DEVICE_COMPILER_AVAILABLE, sizeof compiles, &compiles, NULL);
  printf("device: %s compiles %u\n", profile, compiles);
  context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  printf("context: %d\n", code);
  if (!strcmp(argv[1], "units")) {
    units();
  } else if (!strcmp(argv[1], "source")) {
    build_source();
  }
  for (int i = 2; i < argc; i++) {
    if (!strcmp(argv[1], "damaged")) {
      damaged(argv[i]);
      continue;
    }
    cl_program program = load_image(argv[i]);
    if (!program) {
      continue;
    }
    run(program, argv[i]);
    if (!strcmp(argv[1], "hold")) {
      printf("ready\n");
      pause();
    }
    if (strcmp(argv[1], "several")) {
      clReleaseProgram(program);
    }
  }
  printf("done\n");
  return 0;
}
