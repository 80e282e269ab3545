# `make demo` runs a demonstration, `make test` runs the tests; both install their dependencies.
CARGO ?= cargo
OUT := target

.PHONY: all demo test test-all lint unit soak loom miri integration fuzz deny cts mpi-programs test-kills test-gpu test-hdl test-live test-board test-drivers test-messages test-messages-boards test-vm \
	test-kubernetes test-kubernetes-api test-packages packages previous-release kernel-demo move-demo board-demo board-synth bench-opencl bench-http bench-cluster bench-reconfigure bench-cluster-kubernetes bench-board bench-messages bench-kernels \
	bench-vm bench-kubernetes cluster-demo docs apps build humboldt setup clean help

all: build apps

help: ## lists the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

demo: setup ## an OpenCL program produces the same picture natively and through Baltra
	@scripts/demo.sh

test: ## all groups that need no root, and those in ALSO; the last line counts tests
	@ALSO='$(ALSO)' scripts/test.sh

test-all: ## every group, including board, kubernetes and packages (root)
	@scripts/test.sh all

lint: ## formatting, phrases, lengths, dependencies between crates, import cycles, port lists, clippy and cargo-deny
	@scripts/test.sh format text crates ports clippy deny

unit: crate = $(firstword $(subst ::, ,$(T)))
unit: ## unit tests of the crates; make unit T=wire::limits: tests of one crate whose name contains the rest
ifdef T
	@$(CARGO) test --locked -p baltra-$(crate) -- $(patsubst $(crate)::%,%,$(filter-out $(crate),$(T)))
else
	@scripts/test.sh unit
endif

loom: ## model checks of the ring and of the library's steps
	@scripts/test.sh loom

miri: ## the ring under miri, if a nightly toolchain has it
	@scripts/test.sh miri

integration: ## tests with real daemons, drivers and programs
	@scripts/test.sh integration

fuzz: ## fuzzes each decoder for 3 s (BALTRA_FUZZ_SECONDS)
	@scripts/test.sh fuzz

test-kills: ## kills executors, clients, managers and connections during moves and suspensions, 60 times each (BALTRA_KILLS)
	@$(CARGO) build --workspace --locked --lib --bins
	@BALTRA_KILLS=$${BALTRA_KILLS:-60} $(CARGO) test --locked -p baltra-tests --test moves -- --test-threads=1 \
		--nocapture no_session_is_lost outlives_its_former_executor dies_while_its_session_moves
	@BALTRA_KILLS=$${BALTRA_KILLS:-60} $(CARGO) test --locked -p baltra-tests --test nodes -- --test-threads=1 \
		--nocapture before_it_has_moved dies_while_its_session_moves executor_that_has_it \
		during_its_return to_which_it_returns killed_during_a_move
	@BALTRA_KILLS=$${BALTRA_KILLS:-60} $(CARGO) test --locked -p baltra-tests --test suspension -- --test-threads=1 \
		--nocapture that_resumes_it while_it_is_resumed former_executor dies_early while_its_session_is_stored

test-gpu: apps ## the tests that two GPUs of one kind pass, with the driver of BALTRA_TEST_ICD (default NVIDIA's)
	@$(CARGO) build --workspace --locked --lib --bins
	@BALTRA_TEST_ICD=$${BALTRA_TEST_ICD:-/etc/OpenCL/vendors/nvidia.icd} $(CARGO) test --locked -p baltra-tests \
		$(patsubst %,--test %,kernels moves pool sharing suspension swap upgrade) -- --test-threads=4 \
		--skip facts_that_differ_need_force --skip the_only_device_of_a_node_keeps_its_sessions \
		--skip a_device_that_cannot_run_the_program_s_kernels

test-messages: ## tests of the message library: shared memory, TCP, faults, hostile bytes
	@scripts/test.sh messages

test-messages-boards: ## tests of messages between processes and boards: all collectives, all transports
	@scripts/test.sh messages-boards

test-drivers: ## runs programs on PoCL, Intel's CPU runtime, rusticl, Oclgrind and Xilinx XRT, natively and through Baltra
	@scripts/test.sh drivers

test-hdl: ## unit benches and proofs of the board's modules
	@scripts/test.sh hdl

test-live: ## tests the board's live model with Linux' TCP, curl and hostile frames (root)
	@scripts/test.sh live

test-board: ## the same, also of the lean board and of boards without clock gates and with two regions (root)
	@scripts/test.sh board

test-vm: ## tests the VM door with two real guests under QEMU
	@scripts/test.sh vm

test-kubernetes-api: ## tests chart, webhook and controllers on a real API server (root)
	@scripts/test.sh kubernetes-api

test-kubernetes: ## the same, and applications on a real node (root)
	@scripts/test.sh kubernetes

packages: setup ## builds the .deb, the wheel, the static program, the images, the chart and the bill of materials
	@export BALTRA_COMMIT=$$(git describe --always --abbrev=40 --dirty --exclude '*') && \
		$(CARGO) build --release --locked && scripts/static.sh --release
	@deploy/packages/build.py

previous-release: setup ## builds the previous release once, for the tests of compatibility, and keeps it in target/releases
	@scripts/previous_release.sh

test-packages: ## installs the packages in a fresh Debian and a fresh Python; tests the previous release's programs (root)
	@scripts/test.sh packages

docs: $(OUT)/tools/bin/mdbook ## builds the documentation site with search into target/docs/site, and checks its links
	@scripts/docs.py build $<

# Without debug information, as a debug build: it starts in milliseconds and compiles in a few minutes.
$(OUT)/tools/bin/mdbook:
	@CARGO_PROFILE_DEV_DEBUG=false $(CARGO) install mdbook@0.5.4 --debug --locked --no-default-features \
		--features search --root $(OUT)/tools

board-demo: ## demonstrates the live FPGA board with ping, curl and tcpdump (root)
	@scripts/board-demo.sh

kernel-demo: ## one kernel in OpenCL C through every door: the same bytes, as software and as hardware; cycles, area, clock
	@scripts/setup.sh base board
	@scripts/kernel-demo.sh

move-demo: ## a running OpenCL program moves from a processor into a circuit, on to a board, and back
	@scripts/setup.sh base board
	@scripts/move-demo.sh

board-synth: ## places and routes the board for an ECP5-85: area, clock, slack; writes bench/results/board
	@scripts/setup.sh base
	@hdl/syn/shell.py --write

soak: build apps ## runs good, endless, crashing, vanishing and hostile clients on all doors for an hour; SOAK_S=seconds
	@scripts/soak.py --seconds $(or $(SOAK_S),3600)

cluster-demo: build ## demonstrates message passing: the paper's example over shared memory, TCP and on boards; a heat equation
	@scripts/cluster-demo.sh

cts: ## runs Khronos' conformance tests: make cts CTS=path/to/OpenCL-CTS
	@scripts/cts.sh $(CTS) --prefix "$(CURDIR)/target/release/baltra run --standalone --"

mpi-programs: build ## runs unmodified OSU benchmarks and NAS IS: make mpi-programs OSU=path/to/osu NPB=path/to/NPB3.4-MPI
	@scripts/setup.sh fabric
	@scripts/mpi-programs.py $(if $(OSU),--osu $(OSU)) $(if $(NPB),--npb $(NPB))

bench-opencl: setup build apps ## measures OpenCL natively and through Baltra; writes bench/results/opencl
	@scripts/setup.sh bench
	@scripts/photo.sh
	@$(MAKE) -s -C bench/opencl
	@bench/opencl/run.py

bench-http: setup build apps ## compares the HTTP door with nginx; writes bench/results/http
	@scripts/setup.sh bench
	@bench/http/run.py

bench-cluster: setup build ## compares five functions on three nodes with three native ones; writes bench/results/cluster
	@scripts/setup.sh bench
	@bench/cluster/run.py

bench-reconfigure: setup build ## measures functions that share devices which hold one image at a time; writes bench/results/cluster
	@scripts/setup.sh bench
	@bench/cluster/reconfigure.py

bench-cluster-kubernetes: setup build ## the same in a Kubernetes cluster of three nodes (root); writes bench/results/cluster
	@scripts/setup.sh bench kubernetes
	@scripts/kubernetes/build.sh control node
	@target/venv/bin/python bench/cluster/run.py --kubernetes

bench-board: build ## measures the board in cycles, and the speed of its live model; writes bench/results/board
	@scripts/setup.sh base board bench
	@$(MAKE) -s -C hdl/board bench tuned
	@bench/board/run.py
	@bench/board/three_ways.py --write

bench-messages: humboldt build ## compares messages with MPICH and Open MPI, reproduces the paper's tables; writes bench/results/messages
	@scripts/setup.sh bench fabric board
	@bench/messages/run.py
	@bench/messages/boards.py

bench-kernels: build ## measures kernels in OpenCL C on the simulated hardware: cycles, area, build; writes bench/results/kernels
	@scripts/setup.sh test board fabric
	@target/venv/bin/python bench/kernels/run.py $(if $(ONLY),--only $(ONLY)) $(if $(YOSYS),--yosys) $(if $(PLACE),--place) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(J),-j $(J))

bench-vm: setup build apps ## measures the VM door: guest and host, shared memory and TCP; writes bench/results/vm
	@scripts/setup.sh vm
	@scripts/guest.sh
	@bench/vm/run.py

bench-kubernetes: build ## measures webhook, placement, recovery and moves in a cluster of 100 fake nodes (root); writes bench/results/kubernetes
	@scripts/setup.sh base kubernetes
	@scripts/kubernetes/build.sh control
	@target/venv/bin/python bench/kubernetes/run.py

setup:
	@scripts/setup.sh base

humboldt: setup ## builds libhumboldt, the message library
	@$(MAKE) -s -C humboldt

build: setup ## builds the daemons, the library and the command line
	@$(CARGO) build --release --locked

apps: setup ## builds the example applications
	@$(MAKE) -s -C apps
	@$(MAKE) -s -C apps/functions
	@$(MAKE) -s -C bench/opencl

clean:
	@$(CARGO) clean
