"""Huang, Jiang, Liu, Mahdian, Mao and Mirrokni (2023), Learning across data owners with joint
differential privacy."""
