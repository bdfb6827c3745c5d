"""Pages about views, as HTML that needs nothing else: for a file, and for Airflow."""
