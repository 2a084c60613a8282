# The project's commands. `make run` and `make test` are all a newcomer needs; both install the Debian
# packages that they need and lack. `cargo x --help` has the finer ones.
#
# Tests and demo share one build profile, dev (optimised a little, and fast to build), so that
# everything is compiled once. `make run` and `make bench` build with optimisation.

TARGET := $(or $(CARGO_TARGET_DIR),target)
CARGO ?= cargo
HINDSIGHT := $(TARGET)/debug/hindsight
PREFIX ?= /usr/local
CHECKER_SEED ?= 1
CHECKER_ROUNDS ?= 8
GUEST_MINUTES ?= 0
# Tests from outside wait for servers and clients more than they compute.
OUTSIDE_THREADS ?= 4

.PHONY: help run lab build-tests test demo checker check bench guest-test install-hooks

help:
	@echo 'make run         build, start a server on ./pool, make a first volume'
	@echo 'make lab         build the laboratory, hindsight-lab, beside hindsight'
	@echo 'make test        every test of the project, the demo included'
	@echo 'make demo        the PostgreSQL story against a server of its own'
	@echo 'make check       format, lints, house rules, dependencies'
	@echo 'make bench       the benchmarks (long)'
	@echo 'make checker     the black-box checker: CHECKER_SEED=1 CHECKER_ROUNDS=8'
	@echo 'make guest-test  the kernel clients of NBD, iSCSI, NFS in an emulated machine: GUEST_MINUTES=0'
	@echo 'make install-hooks  PREFIX=/usr/local: pg-hook, open-files'

run:
	@scripts/install-packages run
	$(CARGO) build --release -p hindsight-cli
	@exec scripts/run $(TARGET)/release/hindsight

lab:
	@scripts/install-packages run
	$(CARGO) build --release -p hindsight-lab-cli

build-tests:
	@scripts/install-packages test page
	$(CARGO) build --workspace --all-targets --test outside

test: build-tests
	@scripts/install-packages guest
	@echo 'tests that only compute run beside all others, on what those leave of the processor; the'
	@echo 'emulated machine beside the checker and the demo. The output of both comes last'
	@failed=0; idle=$$(chrt --idle 0 echo chrt --idle 0 2>/dev/null || echo nice -n 19); set -x; \
	$$idle scripts/run-tests compute >$(TARGET)/compute-tests.log 2>&1 & compute=$$!; \
	scripts/run-tests clock || failed=1; \
	$(CARGO) test --workspace --doc || failed=1; \
	$(CARGO) test --workspace --test outside --no-run || failed=1; \
	RUST_TEST_THREADS=$(OUTSIDE_THREADS) $(CARGO) test --workspace --test outside || failed=1; \
	scripts/guest-test $(HINDSIGHT) nbd-ext4 iscsi-xfs iscsi-chap nfs lvm >$(TARGET)/guest-test.log 2>&1 & guest=$$!; \
	$(TARGET)/debug/checker --hindsight $(HINDSIGHT) --seed $(CHECKER_SEED) --rounds $(CHECKER_ROUNDS) \
		|| failed=1; \
	scripts/demo --or-skip $(HINDSIGHT) || failed=1; \
	set +x; wait $$guest || failed=1; wait $$compute || failed=1; \
	cat $(TARGET)/guest-test.log $(TARGET)/compute-tests.log; exit $$failed
	@echo; echo 'make test: every test passed'

demo:
	@scripts/install-packages test
	$(CARGO) build -p hindsight-cli
	scripts/demo $(HINDSIGHT)

checker:
	$(CARGO) build -p hindsight-cli -p hindsight-tests
	$(TARGET)/debug/checker --hindsight $(HINDSIGHT) --seed $(CHECKER_SEED) --rounds $(CHECKER_ROUNDS)

check:
	@scripts/install-packages check
	$(CARGO) x check

bench:
	@scripts/install-packages bench
	$(CARGO) build --release -p hindsight-cli -p hindsight-lab-cli
	$(CARGO) x bench

guest-test:
	@scripts/install-packages guest
	$(CARGO) build -p hindsight-cli
	scripts/guest-test --minutes $(GUEST_MINUTES) $(HINDSIGHT)

install-hooks:
	install -D -m 755 dist/pg-hook $(DESTDIR)$(PREFIX)/lib/hindsight/pg-hook
	install -D -m 755 dist/open-files $(DESTDIR)$(PREFIX)/lib/hindsight/open-files
