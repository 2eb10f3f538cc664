"""An engine that another process serves over gRPC, ids to ids."""
