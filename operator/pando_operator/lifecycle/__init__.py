"""How replicas come and go without a cut stream: pure, from what is seen to what is to be done."""
