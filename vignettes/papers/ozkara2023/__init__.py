"""Ozkara, Girgis, Data and Diggavi (2023), A statistical framework for personalized federated
learning and estimation."""
