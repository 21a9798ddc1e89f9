"""Moto's S3 on a free port, until stdin ends: prints its URL, with one bucket and a user of it that may not write elsewhere."""

import json
import os
import sys

# Requests before it checks signatures and policies: those that set it up, below.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "4"

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
url = "http://%s:%d" % server.get_host_and_port()
anyone = {"endpoint_url": url, "region_name": "us-east-1", "aws_access_key_id": "a", "aws_secret_access_key": "b"}
boto3.client("s3", **anyone).create_bucket(Bucket="footage")
iam = boto3.client("iam", **anyone)
allowed = {
    "Effect": "Allow",
    "Action": ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListBucket"],
    "Resource": ["arn:aws:s3:::footage", "arn:aws:s3:::footage/*", "arn:aws:s3:::gone", "arn:aws:s3:::gone/*"],
}
reader = {"Effect": "Deny", "Action": ["s3:PutObject"], "Resource": ["arn:aws:s3:::footage/read-only/*"]}
policy = {"Version": "2012-10-17", "Statement": [allowed, reader]}
iam.create_user(UserName="sightline")
iam.put_user_policy(UserName="sightline", PolicyName="footage", PolicyDocument=json.dumps(policy))
key = iam.create_access_key(UserName="sightline")["AccessKey"]
print(url, key["AccessKeyId"], key["SecretAccessKey"], flush=True)
sys.stdin.read()
server.stop()
