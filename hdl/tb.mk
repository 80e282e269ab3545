# Unit benches: each module listed here is Verilated with its bench tb/MODULE_tb.cpp, at each width
# listed, and run. `make -C hdl test-units` runs all, `make -C hdl test-kernel_echo-64` a single one.
# Clocks are gated, as in the live model (common/rtl/clock_gate).
# The model's runtime is compiled once for all; a bench is one translation unit with its model. With NETLISTS, a folder, benches use
# the netlists there instead of the RTL, and CELLS, the models of their cells (syn/netlist.py).

# room/module:width[,width…]; a width is the parameter W of modules that have one, otherwise 0.
BENCHES := \
  common/axis_skid:0 \
  common/axis_fifo:0 \
  common/fifo_cdc:0 \
  common/axis_packer:32,64 \
  common/axis_rows:32,64 \
  common/axis_emit:32,64 \
  common/axis_bytes:32,64 \
  common/crc32_beat:32,64 \
  common/arbiter:0 \
  common/capture:0 \
  functions/fn_reconfig:32,64 \
  functions/region:32,64 \
  functions/fn_table:0 \
  functions/fn_scheduler:0 \
  functions/fn_stats:0 \
  functions/fn_engine:32,64 \
  messages/msg_router:0 \
  messages/msg_memory:0,1 \
  messages/msg_frames:0 \
  messages/region_packets:0 \
  messages/msg_axis:0 \
  messages/msg_fabric:0,1,2 \
  messages/msg_boards:0 \
  hls/hls_units:0 \
  kernels/memory_guard:0 \
  kernels/memory_cache:0,1 \
  kernels/kernel_readers:0,1 \
  kernels/kernel_template:64 \
  kernels/kernel_echo:32,64 \
  kernels/kernel_uppercase:32,64 \
  kernels/kernel_checksum:32,64 \
  kernels/kernel_sobel:32,64 \
  kernels/kernel_sha256:32,64 \
  kernels/kernel_aes128:32,64 \
  kernels/kernel_matmul:32,64 \
  kernels/kernel_convolution:32,64

VERILATOR ?= ./verilator
VERILATOR_INCLUDE := $(shell $(VERILATOR) --getenv VERILATOR_ROOT)/include
TB := ../target/hdl/tb
SEED ?= 1
# Seeds of benches that run with several; SEED in the command replaces them.
seeds_net_stack := 1 4
JOBS ?= 2
# Maximum run time of a bench in seconds of processor time, which other load does not change.
BENCH_CPU_S ?= 600

tb_rooms := common kernels functions messages hls
tb_rtl := $(wildcard $(tb_rooms:%=%/rtl/*.sv) $(tb_rooms:%=%/tb/*.sv) $(if $(filter net,$(tb_rooms)),,net/rtl/*.sv))
tb_headers := $(wildcard $(tb_rooms:%=%/tb/*.hpp) $(tb_rooms:%=%/tb/*.svh) $(tb_rooms:%=%/rtl/*.svh))
# Packages of the message modules are only for their own benches, and so are the waivers with which these modules are linted.
# They use the network modules' TCP, which other rooms cannot see.
tb_packages = $(if $(filter messages hls,$(1)),lint.vlt) $(if $(filter messages,$(1)),-y net/rtl net/rtl/net_pkg.sv net/rtl/tcp_pkg.sv) \
  $(filter-out $(if $(filter messages,$(1)),,messages/%),$(filter-out $(if $(filter net,$(tb_rooms)),,net/%),$(filter %_pkg.sv,$(tb_rtl))))
tb_rtl_of = -Wall -Wno-GENUNNAMED +define+CLOCK_GATES $(call tb_packages,$(1)) $(tb_search) $(if $(filter-out 0,$(2)),-GW=$(2))
tb_search := $(foreach r,$(tb_rooms),-y $(r)/rtl -y $(r)/tb)
tb_cxx := clang++-16 -std=c++17 -O1 -w -pthread -isystem $(VERILATOR_INCLUDE) -isystem $(VERILATOR_INCLUDE)/vltstd
tb_logs :=

comma := ,

# $(call bench,room,module,width)
define bench
tb_logs += $(TB)/$(2)-$(3)/log
test-$(2)-$(3): $(TB)/$(2)-$(3)/log
	@cat $$<
$(TB)/$(2)-$(3)/bench: $(1)/tb/$(2)_tb.cpp $(tb_rtl) $(tb_headers) tb.mk $(TB)/verilated.o $(TB)/precompiled.pch $(NETLISTS:%=%/$(2)-$(3).v)
	@rm -rf $$(@D) && mkdir -p $$(@D)
	@$(VERILATOR) --cc -O3 --quiet-stats --assert --x-assign unique --x-initial unique \
	  --top-module $$(basename $$(notdir $$(or $$(wildcard $(1)/tb/$(2)_top.sv),$(2)))) --prefix Vdut --Mdir $$(@D)/model \
	  $(if $(NETLISTS),-Wno-lint -Wno-UNOPTFLAT $(NETLISTS)/$(2)-$(3).v $(CELLS),$(call tb_rtl_of,$(1),$(3)) $$(or $$(wildcard $(1)/tb/$(2)_top.sv),$(1)/rtl/$(2).sv))
	@cat $$(@D)/model/*.cpp >$$(@D)/model.cc
	@$(tb_cxx) -include-pch $(TB)/precompiled.pch -DW=$(3) -DBENCH='"$(1)::$(2)::w$(3)"' -I$$(@D)/model -Icommon/tb -I$(1)/tb \
	  -include $$(@D)/model.cc $(1)/tb/$(2)_tb.cpp $(TB)/verilated.o -latomic -o $$@
$(TB)/$(2)-$(3)/log: $(TB)/$(2)-$(3)/bench
	@rm -f $$@.failed
	@(ulimit -t $(BENCH_CPU_S); for seed in $(if $(filter-out file,$(origin SEED)),$(SEED),$(or $(seeds_$(2)),$(SEED))); do $$< $$$$seed || exit; done) >$$@.part 2>&1 || grep -q FAILED $$@.part || \
	  echo 'test $(1)::$(2)::w$(3) ... FAILED (it died)' >>$$@.part
	@if grep -q FAILED $$@.part; then mv $$@.part $$@.failed; cat $$@.failed; exit 1; else mv $$@.part $$@; fi
endef

tb_width = $(foreach w,$(subst $(comma), ,$(word 2,$(subst :, ,$(1)))),$(eval \
  $(call bench,$(word 1,$(subst /, ,$(word 1,$(subst :, ,$(1))))),$(word 2,$(subst /, ,$(word 1,$(subst :, ,$(1))))),$(w))))
$(foreach b,$(BENCHES),$(call tb_width,$(b)))

$(TB)/verilated.o: $(VERILATOR_INCLUDE)/verilated.cpp verilator tb.mk
	@mkdir -p $(@D)
	@$(tb_cxx) -c -include $(VERILATOR_INCLUDE)/verilated_threads.cpp $< -o $@

$(TB)/precompiled.pch: common/sim/precompiled.hpp verilator tb.mk
	@mkdir -p $(@D)
	@$(tb_cxx) -fpch-instantiate-templates -x c++-header $< -o $@

.PHONY: test-units
test-units:
	@mkdir -p $(TB)
	@rm -f $(TB)/*/log $(TB)/*/log.failed
	@$(MAKE) --no-print-directory -k -j$(JOBS) $(tb_logs) >$(TB).out 2>&1 || true
	@for log in $(tb_logs); do \
	  if [ -e $$log ]; then cat $$log; \
	  elif [ -e $$log.failed ]; then cat $$log.failed; \
	  else echo "test $$(basename $$(dirname $$log)) ... FAILED (it did not build)"; fi; \
	done >$(TB).results
	@grep -E '^%|rror' $(TB).out | head -40 || true
	@cat $(TB).results
	@awk '/^test .* \.\.\. ok$$/ { passed++ } /^test .* \.\.\. FAILED/ { failed++ } \
	  END { printf "test result: %s. %d passed; %d failed;\n", failed ? "FAILED" : "ok", passed, failed; exit failed > 0 }' \
	  $(TB).results
