"""Tables as the families publish them, a few rows each, made up here."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cotenant_simulator.replay.family import find
from cotenant_simulator.replay.model import Item, LeftOut, Site

SAMPLES = {
    "alibaba-batch-2018": (
        "tasks.csv",
        ",submit_time,duration,cpu,memory,job_id,task_id,instances_num,disk\n"
        "0,60,30.5,0.5,0.01,1,1,3,0\n1,0,10,1.0,0.02,1,2,30,0\n",
    ),
    "hpc-batch": (
        "log.csv",
        "job,submit_s,wait_s,run_s,procs,req_time_s,req_mem_bytes,user,queue,node_spec\n"
        "1,0,5,100,4,200,1073741824,7,q,1\n2,60,0,50,70,100,2147483648,7,q,1\n",
    ),
    "philly-jobs-2017": ("jobs.csv", "submit_s,duration_s,num_gpus,vc\n0,60,1,a\n30,1.2e+02,16,b\n"),
    "alibaba-openb-gpu-2023": (
        "openb_pod_list_default.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
        "scheduled_time\n"
        "pod-0,4000,1024,1,1000,,LS,Running,100,200,110\n"
        "pod-1,4000,1024,1,500,,LS,Running,100,200,110\n"
        "pod-2,8000,2048,0,0,,BE,Succeeded,120,150,120\n"
        "pod-3,4000,1024,2,1000,V100M16|T4,LS,Pending,130,150,\n",
    ),
    "alibaba-spot-gpu-2026": (
        "nodes.csv",
        "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,8,128,0\nH800,4,192,1\n",
    ),
    "alibaba-dlrm-2025": (
        "instances.csv",
        "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
        "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
        "instance_0,HN,app_0,12,12,1,1,25,25,120.0,120.0,1,1,8,,,\n"
        "instance_1,CN,app_0,64,64,0,0,1,1,320.0,320.0,1,1,-1,90000.0,90001.0,93600.0\n",
    ),
    "azure-llm-2023": (
        "conv.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,300,100\n"
        "2023-11-16 18:15:50.0000000,100,100\n"
        "2023-11-16 18:16:10.0000000,100,50\n",
    ),
    "alibaba-genai-2026": ("qps.csv", "t_s,pod,value,request_type\n0,p0,0.09,G\n0,p1,0.09,G\n57,,0.36,A\n"),
    "nab-series": (
        "ec2_cpu_utilization_1.csv",
        "timestamp,value\n2014-02-14 14:30:00,10\n2014-02-14 14:35:00,50.5\n2014-02-14 14:35:00,1\n",
    ),
    "planetlab-cpu-2011": ("20110303.csv", "vm,t0,t1,t2\nvm0000,10,20,30\nvm0001,5,,7\nvm0002,5,x,7\n"),
    "google-gcd-vms-2011": ("cpu_percent.csv", "vm,t0,t1,t2\n1218322450_1,6.76,7.29,7.1\n"),
}


@pytest.fixture
def sample(tmp_path: Path) -> Callable[..., Path]:
    """The family's sample, as a file."""

    def build(family: str, *, packed: bool = False) -> Path:
        name, text = SAMPLES[family]
        path = tmp_path / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
        return path

    return build


@pytest.fixture
def imported(sample: Callable[..., Path]) -> Callable[..., tuple[Sequence[Item], LeftOut]]:
    def read(family: str) -> tuple[Sequence[Item], LeftOut]:
        path, left_out = sample(family), LeftOut()
        site = Site(8_000, 32 << 30, left_out)
        return list(find(path, None).family.read(path, site)), left_out

    return read
