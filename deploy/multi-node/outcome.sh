#!/bin/sh
# Runs a command, writes its status to the file $OUTCOME, and ends with 0 whatever it was.
#
# trtllm-llmapi-launch stops its leader only behind a command that ends with 0: behind any other the
# leader waits for ever and holds its GPUs. It also splits arguments at spaces, so none may have one.
trap : INT TERM # they are for the command; this shell is to see how it ends
status=0
"$@" || status=$?
echo "$status" >"$OUTCOME"
