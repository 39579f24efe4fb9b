# SPDX-License-Identifier: Apache-2.0
if(VOXCONV_HAVE_CUDA)
  voxconv_add_test(training_cuda_test
    SOURCES cuda_batch_norm_test.cc cuda_batch_peers_test.cc cuda_loss_test.cc cuda_lovasz_test.cc
            cuda_optimizer_test.cc cuda_training_ops_test.cc
    LIBS voxconv_backend_cpu voxconv_backend_cuda
    LABELS unit)
  voxconv_add_test(trainer_cuda_test
    SOURCES recorded_step_cuda_test.cc trainer_cuda_test.cc
    LIBS voxconv_training voxconv_reference_training voxconv_test_session voxconv_backend_cuda
    LABELS unit)
endif()
